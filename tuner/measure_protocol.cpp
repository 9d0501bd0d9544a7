#include "tuner/measure_protocol.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "jit/worker_protocol.h"

namespace attune {
namespace {

using nlohmann::json;

std::string to_body(const json& message) {
  std::string body;
  json::to_cbor(message, body);
  return body;
}

json bytes_of(const std::string& text) {
  return json::binary(std::vector<std::uint8_t>(text.begin(), text.end()));
}

// All fields by their place: a new one does not compile until it is added here.
json to_json(const TimerOptions& options) {
  const auto& [min_samples, max_samples, relative_spread, abandon_above_us, new_graph] = options;
  return json::array({min_samples, max_samples, relative_spread, abandon_above_us, new_graph});
}

void from_json(const json& message, TimerOptions* options) {
  auto& [min_samples, max_samples, relative_spread, abandon_above_us, new_graph] = *options;
  message.at(0).get_to(min_samples);
  message.at(1).get_to(max_samples);
  message.at(2).get_to(relative_spread);
  message.at(3).get_to(abandon_above_us);
  message.at(4).get_to(new_graph);
}

json to_json(const Interval& interval) {
  const auto& [low, high] = interval;
  return json::array({low, high});
}

void from_json(const json& message, Interval* interval) {
  auto& [low, high] = *interval;
  message.at(0).get_to(low);
  message.at(1).get_to(high);
}

json to_json(const Conditions& conditions) {
  const auto& [sm_clock_mhz, memory_clock_mhz, throttle, foreign_processes, steady] = conditions;
  return json::array({sm_clock_mhz, memory_clock_mhz, throttle, foreign_processes, steady});
}

void from_json(const json& message, Conditions* conditions) {
  auto& [sm_clock_mhz, memory_clock_mhz, throttle, foreign_processes, steady] = *conditions;
  message.at(0).get_to(sm_clock_mhz);
  message.at(1).get_to(memory_clock_mhz);
  message.at(2).get_to(throttle);
  message.at(3).get_to(foreign_processes);
  message.at(4).get_to(steady);
}

json to_json(const Timing& timing) {
  const auto& [median_us, spread_us, median_in, num_samples, num_dropped, samples_us, conditions] =
      timing;
  return json::array({median_us, spread_us, to_json(median_in), num_samples, num_dropped,
                      samples_us, to_json(conditions)});
}

void from_json(const json& message, Timing* timing) {
  auto& [median_us, spread_us, median_in, num_samples, num_dropped, samples_us, conditions] =
      *timing;
  message.at(0).get_to(median_us);
  message.at(1).get_to(spread_us);
  from_json(message.at(2), &median_in);
  message.at(3).get_to(num_samples);
  message.at(4).get_to(num_dropped);
  message.at(5).get_to(samples_us);
  from_json(message.at(6), &conditions);
}

json to_json(const Admission& admission) {
  const auto& [reference, num_cases, relative_l2, worst_case, max_abs, created_at] = admission;
  return json::array({reference, num_cases, relative_l2, worst_case, max_abs, created_at});
}

void from_json(const json& message, Admission* admission) {
  auto& [reference, num_cases, relative_l2, worst_case, max_abs, created_at] = *admission;
  message.at(0).get_to(reference);
  message.at(1).get_to(num_cases);
  message.at(2).get_to(relative_l2);
  message.at(3).get_to(worst_case);
  message.at(4).get_to(max_abs);
  message.at(5).get_to(created_at);
}

json to_json(const Rejection& rejection) {
  return json::array({name_of(rejection.reason), rejection.detail});
}

void from_json(const json& message, Rejection* rejection) {
  const auto reason = parse_reject_reason(message.at(0).get<std::string>());
  if (!reason) throw Error("not a reason", message.at(0).dump());
  rejection->reason = *reason;
  message.at(1).get_to(rejection->detail);
}

json to_json(const Ready& ready) { return ready.verification_flops; }
void from_json(const json& message, Ready* ready) { message.get_to(ready->verification_flops); }
json to_json(const UnitFailure& failure) { return failure.reason; }
void from_json(const json& message, UnitFailure* failure) { message.get_to(failure->reason); }
json to_json(const NoDevice& failure) { return failure.reason; }
void from_json(const json& message, NoDevice* failure) { message.get_to(failure->reason); }

// The alternative of that index.
template <std::size_t kIdx = 0, typename Variant>
void from_json(const json& message, std::size_t idx, Variant* variant) {
  if constexpr (kIdx == std::variant_size_v<Variant>) {
    throw Error("not an answer", fmt::format("kind={}", idx));
  } else if (idx == kIdx) {
    from_json(message, &variant->template emplace<kIdx>());
  } else {
    from_json<kIdx + 1>(message, idx, variant);
  }
}

// Runs a decoder; whatever it stumbles over becomes one kind of error.
template <typename Decode>
auto decoding(const std::string& body, const Decode& decode) {
  try {
    return decode(json::from_cbor(body));
  } catch (const std::exception& error) {
    throw Error("cannot read a worker's message",
                fmt::format("bytes={} reason={}", body.size(), error.what()),
                "use the worker programs of this attune");
  }
}

}  // namespace

std::string encode_request(const MeasureRequest& request) {
  json message = {{"ask", static_cast<int>(request.ask)},
                  {"device", request.device},
                  {"gpu", request.gpu},
                  {"problem", request.problem},
                  {"seed", request.seed},
                  {"candidate", request.candidate},
                  {"kv_len", request.kv_len},
                  {"options", to_json(request.options)}};
  if (request.binary) message["binary"] = bytes_of(encode_binary(*request.binary));
  return to_body(message);
}

MeasureRequest decode_request(const std::string& body) {
  return decoding(body, [](const json& message) {
    MeasureRequest request;
    const int ask = message.at("ask").get<int>();
    if (ask < 0 || ask > static_cast<int>(MeasureAsk::kClose)) {
      throw Error("not a request", fmt::format("ask={}", ask));
    }
    request.ask = static_cast<MeasureAsk>(ask);
    message.at("device").get_to(request.device);
    message.at("gpu").get_to(request.gpu);
    message.at("problem").get_to(request.problem);
    message.at("seed").get_to(request.seed);
    message.at("candidate").get_to(request.candidate);
    message.at("kv_len").get_to(request.kv_len);
    from_json(message.at("options"), &request.options);
    if (message.contains("binary")) {
      const auto& bytes = message.at("binary").get_binary();
      request.binary = decode_binary(std::string(bytes.begin(), bytes.end()));
    }
    return request;
  });
}

std::string encode_answer(const MeasureAnswer& answer) {
  const json result = std::visit([](const auto& one) { return to_json(one); }, answer.result);
  return to_body(
      {{"kind", answer.result.index()}, {"result", result}, {"is_usable", answer.is_usable}});
}

MeasureAnswer decode_answer(const std::string& body) {
  return decoding(body, [](const json& message) {
    MeasureAnswer answer;
    from_json(message.at("result"), message.at("kind").get<std::size_t>(), &answer.result);
    message.at("is_usable").get_to(answer.is_usable);
    return answer;
  });
}

}  // namespace attune

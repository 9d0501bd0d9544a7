#include "tuner/isolated_measure.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/worker_process.h"
#include "tuner/deadlines.h"

namespace attune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kProgram = "attune-measure-worker";
constexpr auto kPollInterval = std::chrono::milliseconds(50);

// Waits until the process says something, takes more, or the interval is over.
void wait_for(const WorkerProcess& process, Clock::duration longest) {
  const short events = process.has_unsent() ? POLLIN | POLLOUT : POLLIN;
  pollfd socket{process.socket(), events, 0};
  const auto wait = std::min<Clock::duration>(longest, kPollInterval);
  poll(&socket, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count()));
}

template <typename Good>
std::variant<Good, Rejection, Dropped> outcome_of(MeasureAnswer answer) {
  if (auto* good = std::get_if<Good>(&answer.result)) return std::move(*good);
  if (auto* rejection = std::get_if<Rejection>(&answer.result)) return std::move(*rejection);
  return Rejection{RejectReason::kLaunch, "the measure worker answered something else"};
}

}  // namespace

struct IsolatedMeasure::Worker {
  explicit Worker(const std::string& program) : process(program) {}

  WorkerProcess process;
  std::optional<MeasureAsk> prepared;  // for the unit; empty when it has none
  double verification_flops = 0;
  std::set<Variant> sent;  // binaries of the unit that it has
  int num_loads = 0;
  int num_candidates = 0;  // requests for some, of all units
};

IsolatedMeasure::IsolatedMeasure(IsolatedMeasureOptions options, DeviceInfo device)
    : options_(std::move(options)), device_(std::move(device)), program_(options_.worker_path) {
  if (program_.empty()) program_ = find_program(kProgram, "ATTUNE_MEASURE_WORKER").string();
  require_program(program_, kProgram);
}

IsolatedMeasure::~IsolatedMeasure() = default;

void IsolatedMeasure::open(const MeasureUnit& unit) {
  close();
  doubtful_.clear();
  unit_ = unit;
}

void IsolatedMeasure::close() {
  if (worker_ == nullptr || !worker_->prepared) return;
  worker_->prepared.reset();
  worker_->sent.clear();
  const Reply reply = exchange({.ask = MeasureAsk::kClose}, kCloseDeadline_s, {});
  if (!std::holds_alternative<MeasureAnswer>(reply)) worker_.reset();
}

IsolatedMeasure::Reply IsolatedMeasure::exchange(const MeasureRequest& request, double deadline_s,
                                                 const Stop& stop) {
  WorkerProcess& process = worker_->process;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(deadline_s));
  process.send(encode_request(request));
  while (true) {
    process.send_more();
    const bool is_alive = process.receive();
    try {
      if (const auto message = process.next_message()) return decode_answer(*message);
    } catch (const Error& error) {  // it does not speak our protocol
      return Lost{{RejectReason::kLaunch, error.what()}};
    }
    if (!is_alive) {
      const ProcessEnd end = process.end();
      const bool is_from_outside = end.exit_status < 0 && !end.is_crash;
      return Lost{{RejectReason::kLaunch,
                   fmt::format("the measure worker {}: {}",
                               is_from_outside ? kEndedFromOutside : "died", end.text)},
                  is_from_outside};
    }
    if (stop && stop()) return Dropped{};
    const auto now = Clock::now();
    if (now >= deadline) {
      return Lost{{RejectReason::kTimeout,
                   fmt::format("no answer in {:.4g} s: its process was ended", deadline_s)}};
    }
    wait_for(process, deadline - now);
  }
}

bool IsolatedMeasure::start(const Stop& stop) {
  const MeasureRequest request{
      .ask = MeasureAsk::kStart, .device = options_.device, .gpu = device_.identity()};
  std::string cause;
  for (int attempt = 0; attempt < kStartAttempts; ++attempt) {
    try {
      worker_ = std::make_unique<Worker>(program_);
    } catch (const Error& error) {
      cause = error.what();
      continue;
    }
    ++num_started_;
    const Reply reply = exchange(request, kStartDeadline_s, stop);
    if (const auto* answer = std::get_if<MeasureAnswer>(&reply)) {
      if (std::holds_alternative<Ready>(answer->result)) return true;
      const auto* no_device = std::get_if<NoDevice>(&answer->result);
      cause = no_device == nullptr ? "it answered something else" : no_device->reason;
    }
    worker_.reset();
    if (std::holds_alternative<Dropped>(reply)) return false;
    if (const auto* lost = std::get_if<Lost>(&reply)) cause = lost->rejection.detail;
  }
  throw DeviceUnavailable("the measure worker does not start",
                          fmt::format("program={} device={} attempts={}; {}", program_,
                                      options_.device, kStartAttempts, cause),
                          "use the worker programs of this attune; 'attune doctor' looks at the "
                          "device");
}

IsolatedMeasure::Reply IsolatedMeasure::open_and_prepare(MeasureAsk ask, const Stop& stop) {
  if (!worker_->prepared) {
    Reply opened = exchange({.ask = MeasureAsk::kOpen,
                             .problem = unit_.problem.text(),
                             .seed = unit_.seed,
                             .binary = *unit_.probes},
                            kPrepareDeadline_s, stop);
    if (!std::holds_alternative<MeasureAnswer>(opened)) return opened;
  }
  return exchange({.ask = ask}, kPrepareDeadline_s, stop);
}

// What fails in a process where others ran may be their fault: a new one is asked once more.
bool IsolatedMeasure::prepare(MeasureAsk ask, const Stop& stop) {
  for (int attempt = 1;; ++attempt) {
    if (worker_ == nullptr && !start(stop)) return false;
    if (worker_->prepared == ask) return true;
    const Reply reply = open_and_prepare(ask, stop);
    std::string cause;
    if (const auto* answer = std::get_if<MeasureAnswer>(&reply)) {
      if (const auto* ready = std::get_if<Ready>(&answer->result)) {
        worker_->prepared = ask;
        worker_->verification_flops = ready->verification_flops;
        return true;
      }
      const auto* failure = std::get_if<UnitFailure>(&answer->result);
      cause = failure == nullptr ? "the measure worker answered something else" : failure->reason;
    } else if (const auto* lost = std::get_if<Lost>(&reply)) {
      cause = lost->rejection.detail;
    }
    worker_.reset();
    if (std::holds_alternative<Dropped>(reply)) return false;
    if (attempt == kStartAttempts) throw UnitError(cause);
  }
}

double IsolatedMeasure::deadline_s(const MeasureRequest& request) const {
  if (options_.candidate_timeout_s > 0) return options_.candidate_timeout_s;
  if (request.ask == MeasureAsk::kVerify) {
    return verify_deadline_s(device_, worker_->verification_flops);
  }
  return time_deadline_s(device_, unit_.problem, request.kv_len, request.options);
}

IsolatedMeasure::Reply IsolatedMeasure::run_once(MeasureRequest* request, const Variant& variant,
                                                 const Binary& binary, const Stop& stop) {
  ++worker_->num_candidates;
  request->binary.reset();
  if (worker_->sent.insert(variant).second) {
    request->binary = binary;
    ++worker_->num_loads;
  }
  return exchange(*request, deadline_s(*request), stop);
}

IsolatedMeasure::Reply IsolatedMeasure::run(MeasureRequest request, const Candidate& candidate,
                                            const Binary& binary, const Stop& stop) {
  const Variant variant = candidate.variant(unit_.problem);
  const MeasureAsk phase =
      request.ask == MeasureAsk::kVerify ? MeasureAsk::kPrepareVerify : MeasureAsk::kPrepareTime;
  request.candidate = candidate.text();
  while (true) {
    if (worker_ != nullptr && worker_->num_loads >= options_.loads_per_worker &&
        worker_->sent.count(variant) == 0) {
      worker_.reset();
    }
    if (!prepare(phase, stop)) return Dropped{};
    const bool is_fresh = worker_->num_candidates == 0;
    Reply reply = run_once(&request, variant, binary, stop);
    const auto* answer = std::get_if<MeasureAnswer>(&reply);
    if (answer != nullptr && answer->is_usable) return reply;
    worker_.reset();
    if (std::holds_alternative<Dropped>(reply)) return reply;
    const auto* lost = std::get_if<Lost>(&reply);
    const bool is_its_own = is_fresh && (lost == nullptr || !lost->is_from_outside);
    if (is_its_own || !doubtful_.insert({request.ask, candidate}).second) return reply;
  }
}

VerifyOutcome IsolatedMeasure::verify(const Candidate& candidate, const Binary& binary,
                                      const Stop& stop) {
  Reply reply = run({.ask = MeasureAsk::kVerify}, candidate, binary, stop);
  if (auto* lost = std::get_if<Lost>(&reply)) return std::move(lost->rejection);
  if (std::holds_alternative<Dropped>(reply)) return Dropped{};
  return outcome_of<Admission>(std::get<MeasureAnswer>(std::move(reply)));
}

TimeOutcome IsolatedMeasure::time(const Candidate& candidate, const Binary& binary, int kv_len,
                                  const TimerOptions& options, const Stop& stop) {
  Reply reply = run({.ask = MeasureAsk::kTime, .kv_len = kv_len, .options = options}, candidate,
                    binary, stop);
  if (auto* lost = std::get_if<Lost>(&reply)) return std::move(lost->rejection);
  if (std::holds_alternative<Dropped>(reply)) return Dropped{};
  return outcome_of<Timing>(std::get<MeasureAnswer>(std::move(reply)));
}

}  // namespace attune

// What IsolatedMeasure and attune-measure-worker say to each other, in the form of
// jit/worker_protocol.h: one answer to each request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "tuner/measure_service.h"

namespace attune {

// In the order in which a worker gets them; all but kStart may come again.
enum class MeasureAsk { kStart, kOpen, kPrepareVerify, kPrepareTime, kVerify, kTime, kClose };

struct MeasureRequest {
  MeasureAsk ask = MeasureAsk::kStart;
  std::string device = {};  // kStart: DeviceChoice's text, and the identity that it has to have
  std::string gpu = {};
  std::string problem = {};  // kOpen
  std::uint64_t seed = 0;
  std::string candidate = {};  // kVerify, kTime
  int kv_len = 0;              // kTime
  TimerOptions options = {};
  // kOpen: the measuring kernels. kVerify, kTime: the candidate's, once for each variant of a unit.
  std::optional<Binary> binary = {};
};

struct Ready {
  double verification_flops = 0;  // to kPrepareVerify
};
struct UnitFailure {
  std::string reason;
};
struct NoDevice {
  std::string reason;
};

struct MeasureAnswer {
  std::variant<Ready, Admission, Timing, Rejection, UnitFailure, NoDevice> result;
  bool is_usable = true;  // false: the worker's context or memory is not good for another candidate
};

std::string encode_request(const MeasureRequest& request);
std::string encode_answer(const MeasureAnswer& answer);
// Throw Error for anything that the encoders do not write.
MeasureRequest decode_request(const std::string& body);
MeasureAnswer decode_answer(const std::string& body);

}  // namespace attune

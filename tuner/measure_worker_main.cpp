// attune-measure-worker: loads, verifies and times candidates on a device of its own, as
// IsolatedMeasure asks over standard input, until its input ends. Not meant to be started by hand.
#include <iostream>

#include "jit/worker_channel.h"
#include "tuner/measure_server.h"

int main() {
  try {
    attune::WorkerChannel channel;
    attune::MeasureServer server;
    while (const auto message = channel.next()) {
      if (!channel.answer(encode_answer(server.answer(attune::decode_request(*message))))) return 0;
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "attune-measure-worker: " << error.what() << "\n";
    return 1;
  }
}

// A clone that computes nothing: it pushes a gradient and pulls the weights as fast as the server
// allows.
#ifndef PUSHPULL_SCRIPTS_BENCH_ROUND_CLONE_H_
#define PUSHPULL_SCRIPTS_BENCH_ROUND_CLONE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/wire/gradient_codec.h"
#include "common/wire/transport_security.h"

namespace pushpull {

struct RoundTimes {
  absl::Duration push;   // until the server has acknowledged the push
  absl::Duration total;  // until the next version has been pulled
  absl::Duration cpu;    // processor time of all threads of this process
};

struct CloneOptions {
  std::string address;
  uint32_t clone = 0;
  uint32_t num_clones = 1;
  int rounds = 1;
  bool shared_memory = false;
  const GradientCodec* gradient_codec = &Float32Codec();
  const GradientCodec* weight_codec = &Float32Codec();
  TransportSecurity security = {};
};

// Joins the job at the address (one task) and runs the rounds, with checksums, commit and barrier
// as in training; encodes gradients with error feedback where the codec needs it.
absl::StatusOr<std::vector<RoundTimes>> RunRounds(const CloneOptions& options);

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_ROUND_CLONE_H_

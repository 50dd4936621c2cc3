// Error feedback for gradients that are sent in a coarse encoding: what encoding loses of one
// contribution is added to the next one, so that the sum of what is sent follows the sum of the
// gradients (Seide et al., 2014; Karimireddy et al., 2019):
//
//   sent     = decode(encode(gradient + residual))
//   residual = gradient + residual - sent             once the contribution has been accepted
//
// Not thread-safe. Holds two vectors of the model's size. They live as long as the clone process:
// what they hold is lost when it ends.
#ifndef PUSHPULL_WORKER_CLIENT_ERROR_FEEDBACK_H_
#define PUSHPULL_WORKER_CLIENT_ERROR_FEEDBACK_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "common/model/sharding.h"
#include "common/model/variable_layout.h"
#include "common/wire/gradient_codec.h"

namespace pushpull {

class ErrorFeedback {
 public:
  // total_elements: of the flat vector. moving_statistics: the elements that are statistics, in
  // ascending order. `codec` must outlive the object.
  ErrorFeedback(int64_t total_elements, std::vector<ElementRange> moving_statistics,
                const GradientCodec* codec);

  // Encodes elements [first, first + gradient.size()) of a contribution, a chunk, into `bytes`,
  // which has codec->EncodedBytes(gradient.size()). The same call gives the same bytes until the
  // next Accept, so a contribution may be sent again.
  //
  // A moving statistic is never sent with another sign than it has: where the residual would turn
  // it around, zero is sent, and the residual keeps the rest. So the server never sees a negative
  // variance. Elements that are not finite are sent as such, so that the server refuses the
  // contribution; a residual is always finite.
  void Encode(int64_t first, absl::Span<const float> gradient, char* bytes);

  // Says that the contribution counts: the next one starts from its residual. Without this call the
  // next contribution starts from the same residual as the last. Every chunk of the contribution
  // must have been encoded since the last Accept.
  void Accept() { residual_.swap(pending_); }

  // The residual from which the next contribution starts.
  absl::Span<const float> residual() const { return residual_; }

 private:
  const std::vector<ElementRange> moving_statistics_;
  const GradientCodec* const codec_;
  std::vector<float> residual_;
  std::vector<float> pending_;  // of the contribution that is being sent
  std::vector<float> sum_;      // of a chunk: gradient + residual
};

// Returns the elements of the moving statistics, in ascending order.
std::vector<ElementRange> MovingStatisticsOf(const VariableLayout& layout);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLIENT_ERROR_FEEDBACK_H_

// The gradient source of a clone whose gradients a program computes. CloneTrainer calls Compute on
// its thread, which waits there while the program takes the batch, computes it on a thread of its
// own, and hands the result back.
#ifndef PUSHPULL_WORKER_CLIENT_PROGRAM_GRADIENT_SOURCE_H_
#define PUSHPULL_WORKER_CLIENT_PROGRAM_GRADIENT_SOURCE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

#include "common/base/monotonic_wait.h"
#include "worker/client/gradient_source.h"

namespace pushpull {

// What the program has to compute; pushpull_client.h describes the fields. The memory belongs to
// the source.
struct ProgramBatch {
  bool over = false;
  uint32_t replica = 0;
  uint64_t position = 0;
  uint64_t version = 0;
  BatchPart part;  // sync
  absl::Span<const float> weights;
  absl::Span<float> gradient;
};

// Thread rule: one thread of the program calls Next, Finish and GiveUp; Advance and Stop may be
// called from any thread. The trainer's thread calls the functions of GradientSource, and End when
// it has ended. The functions of the program never wait for the server, except for Next.
class ProgramGradientSource final : public GradientSource {
 public:
  explicit ProgramGradientSource(uint64_t num_samples) : num_samples_(num_samples) {}

  // Blocks until there is a batch, or training has ended, for at most `timeout`. batch->over says
  // whether training has ended, also with the error that it has ended with.
  // DEADLINE_EXCEEDED with over = false: neither has happened.
  // FAILED_PRECONDITION: the program still has a batch.
  // CANCELLED: Stop was called.
  // Any other error: the one that training has ended with.
  absl::Status Next(absl::Duration timeout, ProgramBatch* batch);
  // Says that elements [first_final, size) of the gradient are final. Has no effect if the program
  // has no batch, or if it has said so before. Never blocks.
  void Advance(int64_t first_final);
  // Hands the batch back. FAILED_PRECONDITION: the program has none. CANCELLED: Stop was called.
  absl::Status Finish(GradientResult result) { return HandBack(std::move(result)); }
  // Hands the batch back with an error (`why` is not OK), with which the training then ends.
  absl::Status GiveUp(const absl::Status& why) { return HandBack(why); }
  // Ends all waits for good, the trainer's too. Never blocks.
  void Stop();

  // Training has ended with this status.
  void End(const absl::Status& status);

  // GradientSource
  absl::StatusOr<std::shared_ptr<float>> AllocateVector(int64_t elements) override;
  uint64_t num_images() const override { return num_samples_; }
  void NoteWeights(uint64_t version, absl::Span<const float> weights) override;
  void NotePart(uint32_t replica, const BatchPart& part) override;
  absl::StatusOr<GradientResult> Compute(uint64_t position, uint32_t replica,
                                         absl::Span<const float> weights,
                                         absl::Span<float> gradient,
                                         absl::FunctionRef<void(int64_t)> advance) override;

 private:
  enum class State {
    kNone,     // the trainer has no batch
    kOffered,  // the trainer waits for the program to take the batch
    kTaken,    // the program computes
    kDone,     // the program has handed the batch back, and the trainer has not noticed yet
  };

  absl::Status HandBack(absl::StatusOr<GradientResult> result);

  const uint64_t num_samples_;
  absl::Mutex mutex_;
  MonotonicCondVar changed_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kNone;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  ProgramBatch batch_ ABSL_GUARDED_BY(mutex_);  // weights and version: those pulled last
  std::map<uint32_t, BatchPart> parts_ ABSL_GUARDED_BY(mutex_);  // by replica
  int64_t first_final_ ABSL_GUARDED_BY(mutex_) = 0;
  // The function that the Compute under way was given; null without one.
  absl::FunctionRef<void(int64_t)>* advance_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::StatusOr<GradientResult> result_ ABSL_GUARDED_BY(mutex_);
  // All vectors, so that the program can use those of its batch after the trainer has ended.
  std::vector<std::shared_ptr<float>> vectors_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLIENT_PROGRAM_GRADIENT_SOURCE_H_

// Makes batches ahead of the consumer on background threads, in a fixed pool of buffers.
//
// One consumer thread calls Next; the threads inside are the pipeline's own. The batches are those
// of the sampler whatever the number of threads. Memory: queue_depth + 1 batches, one decoded image
// (and what augmentation makes of it) per thread.
#ifndef PUSHPULL_WORKER_DATA_INPUT_PIPELINE_H_
#define PUSHPULL_WORKER_DATA_INPUT_PIPELINE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

#include "kernels/memory.h"
#include "worker/data/augmentation.h"
#include "worker/data/image_source.h"
#include "worker/data/picture_packer.h"
#include "worker/data/preprocessor.h"
#include "worker/data/sampler.h"

namespace pushpull {

enum class PixelFormat {
  kFloat,     // in [-1, 1]
  kPictures,  // packed, for devices that crop, resize and normalise themselves
};

struct InputPipelineOptions {
  AugmentationSpec augmentation;
  InputShape shape;
  std::vector<int> slots = {0};  // that this process computes
  int num_threads = 1;
  int queue_depth = 2;  // batches ready or being made, beside the consumer's
  PixelFormat format = PixelFormat::kFloat;
};

struct InputBatch {
  int64_t step = 0;
  int slot = 0;
  int64_t n = 0;  // samples
  // One of them, as the format says. 256-byte aligned.
  const float* images = nullptr;  // [n, height, width, channels]
  PackedPictures pictures;
  std::vector<int32_t> labels;  // [n]
  // [n], after augmentation, in shares of the picture, which fills `windows` of the input.
  std::vector<std::vector<Box>> boxes;
  std::vector<InputWindow> windows;       // [n]
  std::vector<ImageSize> original_sizes;  // [n], of the images as decoded
  std::vector<Sample> samples;            // [n], which they are
};

class InputPipeline {
 public:
  using Allocate = std::function<absl::StatusOr<std::unique_ptr<Memory>>(int64_t bytes)>;

  // `source` must outlive the pipeline. `allocate` gives the memory for the pixels of one batch, in
  // which the host writes: page-locked for a GPU; by default the host's own. Nothing is read before
  // the first Next. CHECKs that the slots are within the sampler's. Errors: of `allocate`.
  static absl::StatusOr<std::unique_ptr<InputPipeline>> Create(const ImageSource* source,
                                                               const Sampler& sampler,
                                                               const InputPipelineOptions& options,
                                                               const Allocate& allocate = {});
  // Waits for the images being decoded.
  ~InputPipeline();
  InputPipeline(const InputPipeline&) = delete;
  InputPipeline& operator=(const InputPipeline&) = delete;

  // The batch of (step, slot); `slot` must be one of the pipeline's (else INVALID_ARGUMENT). Blocks
  // until it is made. It stays valid until the next call. The pipeline prepares for calls that go
  // through the slots in increasing order and then on to the next step (each slot's own next one in
  // kAsync); any other call is right too, but drops what was prepared. An error is that of the
  // source; the same call may be repeated.
  absl::StatusOr<const InputBatch*> Next(int64_t step, int slot);

  // The batch that the next call is expected to ask for, if it is made; else null. It is still the
  // pipeline's: valid until SetSlots, or until Next asks for another one.
  const InputBatch* PeekNext();

  // Changes the slots; what was prepared is dropped. The last batch given out stays valid.
  void SetSlots(const std::vector<int>& slots);

 private:
  struct Buffer {
    InputBatch batch;
    std::unique_ptr<Memory> pixels;
    std::optional<PicturePacker> packer;
    bool dropped = false;  // by a jump, while threads still write into it
    int64_t claimed = 0;   // samples handed to threads
    int64_t finished = 0;
    absl::Status status;  // of the first sample that failed
    int64_t failed_sample = 0;
  };
  // The next step expected of a slot; nullopt: never asked for.
  struct Cursor {
    int slot = 0;
    std::optional<int64_t> step;
  };
  struct Claim {
    Buffer* buffer = nullptr;
    int64_t begin = 0;
    int64_t end = 0;
  };

  InputPipeline(const ImageSource* source, const Sampler& sampler,
                const InputPipelineOptions& options);

  void RunThread();
  // What a thread keeps from sample to sample.
  struct Scratch {
    explicit Scratch(const InputShape& shape) : preprocessor(shape) {}
    Preprocessor preprocessor;
    Example example;
    EditableImage image;
  };
  // Makes samples [begin, end); returns the first error and sets *failed.
  absl::Status Fill(const Claim& claim, Scratch* scratch, int64_t* failed) const;
  // Hands free buffers to the batches that will be asked for next.
  void StartBatches() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True when a sample is left to claim, or at the end.
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Claim TakeClaim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Recycle(Buffer* buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropPrepared() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes (step, slot of cursors_[cursor]) the next batch to be started.
  void Jump(int64_t step, int cursor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ImageSource* const source_;
  const Sampler sampler_;
  const InputPipelineOptions options_;

  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Buffer>> buffers_ ABSL_GUARDED_BY(mutex_);
  std::vector<Buffer*> free_ ABSL_GUARDED_BY(mutex_);
  std::deque<Buffer*> prepared_ ABSL_GUARDED_BY(mutex_);  // in the order they will be asked for
  Buffer* given_out_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<Cursor> cursors_ ABSL_GUARDED_BY(mutex_);
  int next_cursor_ ABSL_GUARDED_BY(mutex_) = 0;  // of the next batch to be started
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_INPUT_PIPELINE_H_

// Prepares batches on background threads before the consumer asks for them, in a fixed pool of
// buffers.
//
// Thread rule: one consumer thread calls the methods; the background threads belong to the
// pipeline. The contents of a batch depend only on source, sampler and options, not on the number
// of threads. Memory: queue_depth + 1 batches, and per thread one decoded image and the buffers of
// its augmentation.
#ifndef PUSHPULL_WORKER_DATA_INPUT_PIPELINE_H_
#define PUSHPULL_WORKER_DATA_INPUT_PIPELINE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

#include "kernels/memory.h"
#include "worker/data/augmentation.h"
#include "worker/data/image_packer.h"
#include "worker/data/image_source.h"
#include "worker/data/preprocessor.h"
#include "worker/sampling/sampler.h"

namespace pushpull {

enum class PixelFormat {
  kFloat,         // floats in [-1, 1], ready for the network
  kPackedImages,  // packed images, which a device crops, resizes and normalises itself
};

struct InputPipelineOptions {
  AugmentationSpec augmentation;
  InputShape shape;
  std::vector<int> replicas = {0};  // the replicas whose batches this process computes
  int num_threads = 1;
  int64_t max_samples = 0;  // of the largest batch; 0: sampler.MaxReplicaBatchSize()
  int queue_depth = 2;      // batches ready or in preparation, not counting the consumer's
  PixelFormat format = PixelFormat::kFloat;
  int64_t steps_in_a_row = 1;  // >= 1: the steps of one replica before the next replica's turn
};

struct InputBatch {
  int64_t step = 0;
  int replica = 0;
  BatchPart part = {};  // as SetParts said; without one the sampler's
  int64_t n = 0;        // number of samples
  // The pixels are in `images` with kFloat and in `packed_images` with kPackedImages. The memory is
  // 256-byte aligned.
  const float* images = nullptr;  // [n, height, width, channels]
  PackedImages packed_images;
  std::vector<int32_t> labels;  // [n]
  // [n]; the boxes after augmentation. Edges are shares of the augmented image.
  std::vector<std::vector<Box>> boxes;
  std::vector<InputWindow> windows;       // [n]; the part of the input that each image fills
  std::vector<ImageSize> original_sizes;  // [n]; sizes of the images as decoded
  std::vector<Sample> samples;            // [n]; positions in the run and indices in the source
};

class InputPipeline {
 public:
  using Allocate = std::function<absl::StatusOr<std::unique_ptr<Memory>>(int64_t bytes)>;

  // `source` must outlive the pipeline. `allocate` returns host memory for the pixels of one batch,
  // such as page-locked memory for a GPU; the default is ordinary host memory. Reads nothing before
  // the first Next. CHECKs that options.replicas is not empty and that the sampler has all of them.
  // Errors of `allocate`.
  static absl::StatusOr<std::unique_ptr<InputPipeline>> Create(const ImageSource* source,
                                                               const Sampler& sampler,
                                                               const InputPipelineOptions& options,
                                                               const Allocate& allocate = {});
  // Blocks until each thread has finished the samples it is working on, at most 8.
  ~InputPipeline();
  InputPipeline(const InputPipeline&) = delete;
  InputPipeline& operator=(const InputPipeline&) = delete;

  // Returns the batch of (step, replica) and blocks until it is ready. The batch is valid until the
  // next call of Next. The pipeline expects the replicas in increasing order within a step, and
  // then the next step; with steps_in_a_row = n, within steps [k * n, (k + 1) * n), each replica
  // with all of them. In kAsync each replica counts its steps separately. Any other order gives
  // correct batches too, but discards the prepared ones. INVALID_ARGUMENT: `replica` is not one of
  // the pipeline's. Other errors are those of the source; the call can then be repeated.
  absl::StatusOr<const InputBatch*> Next(int64_t step, int replica);

  // Returns the batch that the next call of Next is expected to ask for if it is ready, otherwise
  // null. Does not block. The pointer is valid until SetReplicas is called or Next asks for a
  // different batch.
  const InputBatch* PeekNext();

  // Returns the replica that the next call of Next is expected to ask for; nullopt before the first
  // call after the replicas were set.
  std::optional<int> ExpectedReplica();

  // Replaces the set of replicas and discards the prepared batches. The batch that the last Next
  // returned stays valid. CHECKs that `replicas` is not empty and that the sampler has all of them.
  void SetReplicas(const std::vector<int>& replicas);
  // kSync: the same for replicas with these parts of the global batch. CHECKs that no part has more
  // than max_samples.
  void SetParts(const std::map<int, BatchPart>& parts);

 private:
  struct Buffer {
    InputBatch batch;
    std::unique_ptr<Memory> pixels;
    std::optional<ImagePacker> packer;
    bool dropped = false;  // discarded while threads still write into it
    int64_t claimed = 0;   // samples handed to threads
    int64_t finished = 0;
    absl::Status status;        // error of the failed sample with the lowest index
    int64_t failed_sample = 0;  // index of that sample
  };
  // The step of a replica's next batch; nullopt until the replica is first asked for.
  struct Cursor {
    int replica = 0;
    BatchPart part;  // without samples: the sampler's
    std::optional<int64_t> step;
  };
  // Samples [begin, end) of a batch, which one thread prepares.
  struct Claim {
    Buffer* buffer = nullptr;
    int64_t begin = 0;
    int64_t end = 0;
  };

  InputPipeline(const ImageSource* source, const Sampler& sampler,
                const InputPipelineOptions& options);

  void RunThread();
  // Buffers that a thread reuses for each sample.
  struct Scratch {
    explicit Scratch(const InputShape& shape) : preprocessor(shape) {}
    Preprocessor preprocessor;
    Example example;
    EditableImage image;
  };
  // Prepares the samples of the claim. Stops at the first error and sets *failed to that sample.
  absl::Status Fill(const Claim& claim, Scratch* scratch, int64_t* failed) const;
  // Assigns free buffers to the batches that are expected next.
  void StartBatches() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether a thread has a reason to wake up: a sample is left to claim, or the pipeline
  // stops.
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Claim TakeClaim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Recycle(Buffer* buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropPrepared() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes (step, cursors_[cursor].replica) the next batch to start.
  void Jump(int64_t step, int cursor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ImageSource* const source_;
  const Sampler sampler_;
  const InputPipelineOptions options_;
  const int64_t max_samples_;

  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Buffer>> buffers_ ABSL_GUARDED_BY(mutex_);
  std::vector<Buffer*> free_ ABSL_GUARDED_BY(mutex_);
  std::deque<Buffer*> prepared_ ABSL_GUARDED_BY(mutex_);  // in the expected order of Next calls
  Buffer* given_out_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<Cursor> cursors_ ABSL_GUARDED_BY(mutex_);
  int next_cursor_ ABSL_GUARDED_BY(mutex_) = 0;  // index of the cursor whose batch starts next
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_INPUT_PIPELINE_H_

#include "worker/data/input_pipeline.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

// Number of samples that a thread takes at once: enough to amortise the lock, few enough to divide
// a batch among the threads.
constexpr int64_t kClaimSamples = 8;

// Returns the number of bytes for the pixels of a batch.
int64_t PixelBytes(const InputPipelineOptions& options, int64_t samples) {
  const int64_t elements = options.shape.num_elements();
  if (options.format == PixelFormat::kPackedImages) return ImageBlockBytes(samples, elements);
  return samples * elements * static_cast<int64_t>(sizeof(float));
}

}  // namespace

InputPipeline::InputPipeline(const ImageSource* source, const Sampler& sampler,
                             const InputPipelineOptions& options)
    : source_(source),
      sampler_(sampler),
      options_(options),
      max_samples_(options.max_samples > 0 ? options.max_samples : sampler.MaxReplicaBatchSize()) {
  CHECK_GE(options.num_threads, 1);
  CHECK_GE(options.queue_depth, 1);
  SetReplicas(options.replicas);
}

absl::StatusOr<std::unique_ptr<InputPipeline>> InputPipeline::Create(
    const ImageSource* source, const Sampler& sampler, const InputPipelineOptions& options,
    const Allocate& allocate) {
  std::unique_ptr<InputPipeline> pipeline(new InputPipeline(source, sampler, options));
  const int64_t max_samples = pipeline->max_samples_;
  absl::MutexLock lock(&pipeline->mutex_);
  for (int i = 0; i < options.queue_depth + 1; ++i) {
    auto buffer = std::make_unique<Buffer>();
    const int64_t bytes = PixelBytes(options, max_samples);
    PP_ASSIGN_OR_RETURN(buffer->pixels, allocate ? allocate(bytes) : HostMemory()->Allocate(bytes));
    if (options.format == PixelFormat::kFloat) {
      buffer->batch.images = static_cast<const float*>(buffer->pixels->data());
    } else {
      buffer->packer.emplace(options.shape, max_samples, buffer->pixels->data());
    }
    buffer->batch.labels.reserve(max_samples);
    buffer->batch.samples.reserve(max_samples);
    pipeline->free_.push_back(buffer.get());
    pipeline->buffers_.push_back(std::move(buffer));
  }
  for (int i = 0; i < options.num_threads; ++i) {
    pipeline->threads_.emplace_back([raw = pipeline.get()] { raw->RunThread(); });
  }
  return pipeline;
}

InputPipeline::~InputPipeline() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void InputPipeline::SetReplicas(const std::vector<int>& replicas) {
  std::map<int, BatchPart> parts;
  for (const int replica : replicas) {
    CHECK_LT(replica, sampler_.options().num_replicas);
    parts[replica] = {};
  }
  SetParts(parts);
}

void InputPipeline::SetParts(const std::map<int, BatchPart>& parts) {
  absl::MutexLock lock(&mutex_);
  CHECK(!parts.empty());
  DropPrepared();
  std::vector<Cursor> cursors;
  for (const auto& [replica, part] : parts) {
    CHECK_GE(replica, 0);
    CHECK_LE(part.samples, max_samples_);
    Cursor cursor{replica, part, std::nullopt};
    for (const Cursor& old : cursors_) {
      if (old.replica == replica) cursor.step = old.step;
    }
    cursors.push_back(cursor);
  }
  cursors_ = std::move(cursors);
  next_cursor_ = 0;
  started_ = false;
}

void InputPipeline::Recycle(Buffer* buffer) {
  buffer->dropped = false;
  free_.push_back(buffer);
}

void InputPipeline::DropPrepared() {
  // Going from the back leaves each cursor at the earliest dropped step of its replica.
  for (; !prepared_.empty(); prepared_.pop_back()) {
    Buffer* const buffer = prepared_.back();
    for (Cursor& cursor : cursors_) {
      if (cursor.replica == buffer->batch.replica) cursor.step = buffer->batch.step;
    }
    if (buffer->finished == buffer->claimed) {
      Recycle(buffer);
    } else {
      buffer->dropped = true;  // the last thread that works on it recycles it
    }
  }
}

void InputPipeline::Jump(int64_t step, int cursor) {
  const bool each_its_own = sampler_.options().mode == SamplerOptions::Mode::kAsync;
  const int64_t row = step - step % options_.steps_in_a_row;  // first step of the row
  for (int i = 0; i < static_cast<int>(cursors_.size()); ++i) {
    if (i != cursor && each_its_own && cursors_[i].step.has_value()) continue;
    cursors_[i].step = i == cursor ? step : i < cursor ? row + options_.steps_in_a_row : row;
  }
  next_cursor_ = cursor;
  started_ = true;
}

void InputPipeline::StartBatches() {
  if (!started_) return;
  while (!free_.empty() && static_cast<int>(prepared_.size()) < options_.queue_depth) {
    Cursor& cursor = cursors_[next_cursor_];
    Buffer* const buffer = free_.back();
    free_.pop_back();
    buffer->claimed = 0;
    buffer->finished = 0;
    buffer->status = absl::OkStatus();
    InputBatch& batch = buffer->batch;
    batch.step = *cursor.step;
    batch.replica = cursor.replica;
    batch.part = cursor.part;
    if (cursor.part.samples > 0) {
      sampler_.GetPart(batch.step, cursor.part, &batch.samples);
    } else {
      sampler_.GetBatch(batch.step, batch.replica, &batch.samples);
    }
    batch.n = static_cast<int64_t>(batch.samples.size());
    batch.labels.resize(batch.n);
    batch.boxes.resize(batch.n);
    batch.windows.resize(batch.n);
    batch.original_sizes.resize(batch.n);
    if (buffer->packer.has_value()) buffer->packer->Begin(batch.n);
    prepared_.push_back(buffer);
    cursor.step = batch.step + 1;
    if (*cursor.step % options_.steps_in_a_row != 0) continue;
    next_cursor_ = (next_cursor_ + 1) % static_cast<int>(cursors_.size());
  }
}

bool InputPipeline::HasWork() const {
  return stop_ || std::any_of(prepared_.begin(), prepared_.end(), [](const Buffer* buffer) {
           return buffer->claimed < buffer->batch.n;
         });
}

absl::StatusOr<const InputBatch*> InputPipeline::Next(int64_t step, int replica) {
  CHECK_GE(step, 0);
  absl::MutexLock lock(&mutex_);
  if (given_out_ != nullptr) Recycle(given_out_);
  given_out_ = nullptr;
  const auto cursor = std::find_if(cursors_.begin(), cursors_.end(),
                                   [replica](const Cursor& c) { return c.replica == replica; });
  if (cursor == cursors_.end()) {
    const auto name = [](std::string* out, const Cursor& c) { absl::StrAppend(out, c.replica); };
    return absl::InvalidArgumentError(absl::StrCat("input pipeline: replica ", replica,
                                                   " is asked for, it has the replicas ",
                                                   absl::StrJoin(cursors_, ", ", name)));
  }
  StartBatches();
  if (prepared_.empty() || prepared_.front()->batch.step != step ||
      prepared_.front()->batch.replica != replica) {
    DropPrepared();
    Jump(step, static_cast<int>(cursor - cursors_.begin()));
    StartBatches();
  }
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !prepared_.empty() && prepared_.front()->finished == prepared_.front()->batch.n;
  };
  mutex_.Await(absl::Condition(&ready));
  Buffer* const buffer = prepared_.front();
  prepared_.pop_front();
  if (!buffer->status.ok()) {
    Recycle(buffer);
    return buffer->status;
  }
  given_out_ = buffer;
  StartBatches();
  return &buffer->batch;
}

const InputBatch* InputPipeline::PeekNext() {
  absl::MutexLock lock(&mutex_);
  if (prepared_.empty()) return nullptr;
  const Buffer* const next = prepared_.front();
  return next->finished == next->batch.n && next->status.ok() ? &next->batch : nullptr;
}

std::optional<int> InputPipeline::ExpectedReplica() {
  absl::MutexLock lock(&mutex_);
  if (!started_) return std::nullopt;
  return prepared_.empty() ? cursors_[next_cursor_].replica : prepared_.front()->batch.replica;
}

InputPipeline::Claim InputPipeline::TakeClaim() {
  for (Buffer* const buffer : prepared_) {
    const int64_t left = buffer->batch.n - buffer->claimed;
    if (left == 0) continue;
    Claim claim{buffer, buffer->claimed, buffer->claimed + std::min(left, kClaimSamples)};
    buffer->claimed = claim.end;
    return claim;
  }
  LOG(FATAL) << "HasWork promised a sample";
}

absl::Status InputPipeline::Fill(const Claim& claim, Scratch* scratch, int64_t* failed) const {
  InputBatch& batch = claim.buffer->batch;
  const uint64_t seed = sampler_.options().seed;
  for (int64_t i = claim.begin; i < claim.end; ++i) {
    const Sample& sample = batch.samples[i];
    const absl::Status status = source_->GetEncoded(sample.index, &scratch->example);
    if (!status.ok()) {
      *failed = i;
      return status;
    }
    batch.labels[i] = scratch->example.label;
    batch.boxes[i] = scratch->example.boxes;
    batch.original_sizes[i] = {scratch->example.image.height, scratch->example.image.width};
    scratch->image.Take(&scratch->example.image);
    Augment(options_.augmentation, seed, sample.position, &scratch->image, &batch.boxes[i]);
    if (const absl::Status decoded = scratch->image.Decode(); !decoded.ok()) {
      *failed = i;
      return decoded;
    }
    batch.windows[i] = WindowOf(options_.shape, {scratch->image.height(), scratch->image.width()});
    const Shift shift = DrawShift(options_.augmentation, seed, sample.position);
    if (claim.buffer->packer.has_value()) {
      claim.buffer->packer->Add(i, shift, &scratch->image, &scratch->preprocessor);
    } else {
      float* const images = static_cast<float*>(claim.buffer->pixels->data());
      const PixelView stored = scratch->image.ViewWithoutPadding();
      scratch->preprocessor.Run(stored, scratch->image.map(), shift,
                                images + i * options_.shape.num_elements());
    }
  }
  return absl::OkStatus();
}

void InputPipeline::RunThread() {
  Scratch scratch(options_.shape);
  absl::MutexLock lock(&mutex_);
  for (;;) {
    mutex_.Await(absl::Condition(this, &InputPipeline::HasWork));
    if (stop_) return;
    const Claim claim = TakeClaim();
    mutex_.Unlock();
    int64_t failed = 0;
    const absl::Status status = Fill(claim, &scratch, &failed);
    mutex_.Lock();
    Buffer* const buffer = claim.buffer;
    buffer->finished += claim.end - claim.begin;
    if (buffer->packer.has_value()) buffer->batch.packed_images = buffer->packer->packed_images();
    if (!status.ok() && (buffer->status.ok() || failed < buffer->failed_sample)) {
      buffer->status = status;
      buffer->failed_sample = failed;
    }
    if (buffer->dropped && buffer->finished == buffer->claimed) {
      Recycle(buffer);
      StartBatches();
    }
  }
}

}  // namespace pushpull

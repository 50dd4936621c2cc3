// Tested by tests/worker/model/device_runner_test.cc.
#include "worker/model/step_pieces.h"

#include <utility>

#include "glog/logging.h"

#include "kernels/bfloat16.h"

namespace pushpull {
namespace {

// Bounds the memory that graphs take; few batch sizes occur in practice.
constexpr size_t kMaxRecordings = 8;

}  // namespace

template <typename T>
StepPieces<T>::StepPieces(Network<T>* network, Device* device, const StepPieceOptions& options)
    : network_(*network),
      device_(*device),
      options_(options),
      forward_stops_(network->ForwardStops(options.forward_elements)) {}

template <typename T>
void StepPieces<T>::Forget() {
  recordings_.clear();
  current_ = nullptr;
}

template <typename T>
void StepPieces<T>::Begin(const typename Network<T>::Step& step) {
  const int64_t samples = step.batch.samples;
  if (recordings_.size() >= kMaxRecordings && !recordings_.contains(samples)) Forget();
  current_ = &recordings_[samples];
  next_forward_ = 0;
  next_backward_ = 0;
  mode_ = Mode::kReplay;
  if (current_->complete) return;
  mode_ = options_.record && current_->played ? Mode::kRecord : Mode::kPlay;
  current_->forward.clear();
  current_->backward.clear();
  network_.BeginStep(step);
}

template <typename T>
int64_t StepPieces<T>::Queue(std::vector<Piece>* pieces, size_t index,
                             absl::FunctionRef<int64_t()> work) {
  if (mode_ == Mode::kPlay) return work();
  if (mode_ == Mode::kRecord) {
    Piece piece;
    piece.graph = device_.Record([&] { piece.first = work(); });
    pieces->push_back(std::move(piece));
  }
  const Piece& piece = (*pieces)[index];
  device_.Launch(piece.graph.get());
  return piece.first;
}

template <typename T>
void StepPieces<T>::QueueForward() {
  CHECK(current_ != nullptr && next_forward_ < forward_stops_.size());
  const size_t index = next_forward_++;
  Queue(&current_->forward, index, [&] {
    network_.ContinueForward(forward_stops_[index]);
    return int64_t{0};
  });
}

template <typename T>
int64_t StepPieces<T>::QueueBackward() {
  CHECK(current_ != nullptr && next_forward_ == forward_stops_.size());
  const int64_t first = Queue(&current_->backward, next_backward_++,
                              [&] { return network_.ContinueStep(options_.backward_elements); });
  if (first > 0) return first;
  current_->played = true;
  current_->complete = mode_ != Mode::kPlay;
  return 0;
}

template class StepPieces<float>;
template class StepPieces<Bfloat16>;

}  // namespace pushpull

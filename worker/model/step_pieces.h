// Queues training steps on a device in pieces. The first step of a batch size is queued operator by
// operator. The second one is recorded as one device graph per piece. Later steps replay the
// graphs.
#ifndef PUSHPULL_WORKER_MODEL_STEP_PIECES_H_
#define PUSHPULL_WORKER_MODEL_STEP_PIECES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"

#include "kernels/device.h"
#include "worker/model/network.h"

namespace pushpull {

struct StepPieceOptions {
  int64_t forward_elements = 1;   // argument of Network::ForwardStops
  int64_t backward_elements = 1;  // argument of Network::ContinueStep
  bool record = true;             // false: every step is queued operator by operator
};

// For each step: call Begin, then QueueForward once per forward stop, then QueueBackward until it
// returns 0. Thread-compatible. Calls do not wait for the device.
template <typename T>
class StepPieces {
 public:
  // `network` and `device` must outlive the object.
  StepPieces(Network<T>* network, Device* device, const StepPieceOptions& options);

  // Piece i of the forward pass reads only variables below element forward_stops()[i].
  const std::vector<int64_t>& forward_stops() const { return forward_stops_; }

  // Begins a step, and gives up a step that is not complete. Recordings contain addresses, so all
  // steps of a batch size must have the same pointers; call Forget when they change.
  void Begin(const typename Network<T>::Step& step);
  // Queues the next piece of the forward pass.
  void QueueForward();
  // Queues the next piece of the backward pass. Returns the first element of the gradient that is
  // final after it; 0 means that the step is complete.
  int64_t QueueBackward();

  // Drops all recordings.
  void Forget();

 private:
  struct Piece {
    std::unique_ptr<DeviceGraph> graph;
    int64_t first = 0;  // backward: the result of QueueBackward
  };
  struct Recording {
    // A whole step has been queued operator by operator. That loads all kernels, which cannot be
    // done while recording.
    bool played = false;
    bool complete = false;  // `forward` and `backward` hold the graphs of a whole step
    std::vector<Piece> forward, backward;
  };
  enum class Mode { kPlay, kRecord, kReplay };

  // Queues a piece, with or without a recording, as mode_ says. `work` queues its operators.
  // Returns the result of `work`.
  int64_t Queue(std::vector<Piece>* pieces, size_t index, absl::FunctionRef<int64_t()> work);

  Network<T>& network_;
  Device& device_;
  const StepPieceOptions options_;
  const std::vector<int64_t> forward_stops_;
  std::map<int64_t, Recording> recordings_;  // by number of samples
  Recording* current_ = nullptr;
  Mode mode_ = Mode::kPlay;
  size_t next_forward_ = 0;
  size_t next_backward_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_STEP_PIECES_H_

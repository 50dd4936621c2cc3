// A training step on a device in pieces, each queued as a whole: played operator by operator the
// first time a batch size comes, recorded the second time, replayed from then on.
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
  int64_t forward_elements = 1;   // Network::ForwardStops
  int64_t backward_elements = 1;  // Network::ContinueStep
  bool record = true;
};

template <typename T>
class StepPieces {
 public:
  // Both must outlive the object.
  StepPieces(Network<T>* network, Device* device, const StepPieceOptions& options);

  // Where the pieces of forward end: each reads no variable from there on.
  const std::vector<int64_t>& forward_stops() const { return forward_stops_; }

  // Steps of one batch size have the same pointers each time, or Forget has been called. A step
  // that was begun and not finished is given up.
  void Begin(const typename Network<T>::Step& step);
  // The next piece of forward; as many as there are stops.
  void QueueForward();
  // The next piece of backward; returns the first element that is final after it, 0 ends the step.
  int64_t QueueBackward();

  // Recordings are of no use any more: an address has changed.
  void Forget();

 private:
  struct Piece {
    std::unique_ptr<DeviceGraph> graph;
    int64_t first = 0;  // backward: what QueueBackward returns
  };
  struct Recording {
    bool played = false;    // a whole step: every kernel is loaded, which cannot be recorded
    bool complete = false;  // forward and backward hold a whole step
    std::vector<Piece> forward, backward;
  };
  enum class Mode { kPlay, kRecord, kReplay };

  // Plays, records or replays a piece; returns what its work returns.
  int64_t Queue(std::vector<Piece>* pieces, size_t index, absl::FunctionRef<int64_t()> work);

  Network<T>& network_;
  Device& device_;
  const StepPieceOptions options_;
  const std::vector<int64_t> forward_stops_;
  std::map<int64_t, Recording> recordings_;  // by samples
  Recording* current_ = nullptr;
  Mode mode_ = Mode::kPlay;
  size_t next_forward_ = 0;
  size_t next_backward_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_STEP_PIECES_H_

#include "tests/ps_server/simulator/world.h"

#include "absl/strings/str_format.h"

namespace pushpull::sim {

std::optional<VersionId> Disk::NewestCheckpoint() const {
  std::optional<VersionId> newest;
  for (const auto& [step, checkpoint] : checkpoints) {
    const VersionId id{checkpoint.epoch, step};
    if (!newest.has_value() || id > *newest) newest = id;
  }
  return newest;
}

void World::Fail(const std::string& violation) {
  if (!violation_.empty()) return;
  violation_ = absl::StrFormat("%s (at %.3f s)", violation, absl::ToDoubleSeconds(queue_.now()));
}

void World::RunOn(Process* process, absl::Duration delay, std::function<void()> run) {
  queue_.After(delay, [this, process, incarnation = process->incarnation, run = std::move(run)] {
    if (!process->alive || process->incarnation != incarnation) return;
    if (process->paused_until > queue_.now()) {
      RunOn(process, process->paused_until - queue_.now(), run);
      return;
    }
    run();
  });
}

absl::Duration World::Delay() {
  return Trouble(config_.long_delay) ? Seconds(0.1, 6) : Seconds(0.0005, 0.03);
}

void World::Send(const Process& from, Process* to, std::function<void()> deliver,
                 std::function<void()> refused) {
  ++counts.messages;
  if (&from == to) {  // Nothing is lost within a process.
    RunOn(to, Seconds(0, 0.001), std::move(deliver));
    return;
  }
  if (from.partitioned_until > queue_.now()) return;
  const int copies = Trouble(config_.loss) ? 0 : Trouble(config_.duplication) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    queue_.After(Delay(), [this, to, deliver, refused] {
      if (to->partitioned_until > queue_.now()) return;
      if (!to->alive) {
        if (refused != nullptr) refused();
        return;
      }
      if (to->paused_until > queue_.now()) {
        RunOn(to, to->paused_until - queue_.now(), deliver);
        return;
      }
      deliver();
    });
  }
}

}  // namespace pushpull::sim

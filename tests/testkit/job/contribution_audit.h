// Compares every gradient that clones push with the weights it is computed from. It stands at the
// border between clones and servers (relay_handler.h) and in the clones' gradient source, so a
// contribution of old weights under a new version shows although the job goes on.
#ifndef PUSHPULL_TESTS_TESTKIT_JOB_CONTRIBUTION_AUDIT_H_
#define PUSHPULL_TESTS_TESTKIT_JOB_CONTRIBUTION_AUDIT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"

#include "common/model/sharding.h"
#include "common/wire/ps_handler.h"

namespace pushpull {

// Thread-safe. One clone at a time has a worker id.
class ContributionAudit {
 public:
  ContributionAudit(const Sharding& sharding, bool sync) : sharding_(sharding), sync_(sync) {}

  // A server answers a pull.
  void NotePull(const PullSnapshot& snapshot);
  // A chunk arrives at a server. Its key has to name the weights of the clone's last NoteCompute,
  // and its bytes have to be those of the expected gradient.
  void NoteChunk(const ps::PushChunk& header, const Payload& payload);
  // The coordinator has answered a commit.
  void NoteOutcome(const ps::PushKey& key, ps::PushReply::Outcome outcome);

  // A clone computes a contribution. `expected` is the gradient that it will send.
  void NoteCompute(uint32_t worker, uint64_t position, uint32_t replica,
                   absl::Span<const float> weights, absl::Span<const float> expected);
  // A test's hook has changed that gradient.
  void NoteGradient(uint32_t worker, absl::Span<const float> gradient);
  // The clone's weights at the end of the computation; they must not have changed.
  void NoteComputed(uint32_t worker, absl::Span<const float> weights);

  // What was wrong, at most 20 sentences.
  std::vector<std::string> problems() const;
  // How many chunks were compared with their expected bytes.
  uint64_t compared_chunks() const;
  // The replicas whose commit for `step` was answered ACCEPTED, in the newest epoch that has any.
  std::set<uint32_t> AcceptedReplicas(uint64_t step) const;
  // Asynchronous mode: how often a commit for (replica, position) was answered ACCEPTED.
  std::map<std::pair<uint32_t, uint64_t>, int> AcceptedPositions() const;

 private:
  // The weights of one shard by (epoch, version).
  using Versions = std::map<std::pair<uint64_t, uint64_t>, std::vector<float>>;
  // The last contribution that a clone has computed.
  struct Computed {
    uint64_t position = 0;
    uint32_t replica = 0;
    std::vector<float> weights;
    std::vector<float> gradient;
    std::string judged_key;  // the push key that has been compared, serialized
  };

  void Problem(absl::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void JudgeKey(const ps::PushKey& key, const Computed& computed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The version in `epoch` whose weights of `shard` these are. `preferred` decides between equals.
  std::optional<uint64_t> VersionOf(int shard, uint64_t epoch, uint64_t preferred,
                                    absl::Span<const float> weights) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Sharding sharding_;
  const bool sync_;
  mutable absl::Mutex mutex_;
  std::map<int, Versions> served_ ABSL_GUARDED_BY(mutex_);         // by shard
  std::map<uint32_t, Computed> computed_ ABSL_GUARDED_BY(mutex_);  // by worker id
  // Serialized push keys, and the data position of each.
  std::map<std::string, uint64_t> positions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<uint64_t, uint64_t>, std::set<uint32_t>> accepted_
      ABSL_GUARDED_BY(mutex_);  // by (step, epoch)
  std::map<std::pair<uint32_t, uint64_t>, int> accepted_positions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> problems_ ABSL_GUARDED_BY(mutex_);
  uint64_t compared_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_JOB_CONTRIBUTION_AUDIT_H_

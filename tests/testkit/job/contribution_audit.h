// Compares every gradient that clones push with the weights from which it is computed. It observes
// the messages between clones and servers (relay_handler.h) and the clones' gradient sources. It
// thus detects a contribution of old weights under a newer version, which the job itself would
// accept.
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
#include "worker/client/exact_elements.h"

namespace pushpull {

// Thread-safe. At any time, at most one clone may have a worker id.
class ContributionAudit {
 public:
  // exact: the elements that no encoding rounds.
  ContributionAudit(const Sharding& sharding, bool sync, ExactElements exact)
      : sharding_(sharding), sync_(sync), exact_(std::move(exact)) {}

  // Call when a server answers a pull, whose weights are sent in `encoding`.
  void NotePull(const PullSnapshot& snapshot, ps::GradientEncoding encoding);
  // Call when a chunk arrives at a server. The chunk's key has to name the weights of the clone's
  // last NoteCompute, and its bytes have to be those of the expected gradient. What is sent with
  // error feedback depends on all gradients before, so there only the key is checked, as with a
  // float32 chunk that has exact elements beside rounded ones.
  void NoteChunk(const ps::PushChunk& header, const Payload& payload);
  // Call when the coordinator has answered a commit.
  void NoteOutcome(const ps::PushKey& key, ps::PushReply::Outcome outcome);

  // Call when a clone starts to compute a contribution. `expected` is the gradient that it will
  // send.
  void NoteCompute(uint32_t worker, uint64_t position, uint32_t replica,
                   absl::Span<const float> weights, absl::Span<const float> expected);
  // Call when a test's hook has changed that gradient.
  void NoteGradient(uint32_t worker, absl::Span<const float> gradient);
  // Call at the end of the computation with the clone's weights, which must not have changed.
  void NoteComputed(uint32_t worker, absl::Span<const float> weights);

  // Descriptions of the problems found, at most 20.
  std::vector<std::string> problems() const;
  // Returns how many chunks were compared with their expected bytes.
  uint64_t compared_chunks() const;
  // Returns the replicas whose commit for `step` was ACCEPTED, in the newest epoch that has any.
  std::set<uint32_t> AcceptedReplicas(uint64_t step) const;
  // Asynchronous mode: returns how often a commit for (replica, position) was ACCEPTED.
  std::map<std::pair<uint32_t, uint64_t>, int> AcceptedPositions() const;

 private:
  // The weights of one shard by (epoch, version), as the clones get them.
  using Versions = std::map<std::pair<uint64_t, uint64_t>, std::vector<float>>;
  // The last contribution that a clone has computed.
  struct Computed {
    uint64_t position = 0;
    uint32_t replica = 0;
    std::vector<float> weights;
    std::vector<float> gradient;
    std::string judged_key;  // the serialized push key that was checked last
  };

  void Problem(absl::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void JudgeKey(const ps::PushKey& key, const Computed& computed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the version in `epoch` with these weights of `shard`, or `preferred` if several match.
  std::optional<uint64_t> VersionOf(int shard, uint64_t epoch, uint64_t preferred,
                                    absl::Span<const float> weights) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Sharding sharding_;
  const bool sync_;
  const ExactElements exact_;
  mutable absl::Mutex mutex_;
  std::map<int, Versions> served_ ABSL_GUARDED_BY(mutex_);         // by shard
  std::map<uint32_t, Computed> computed_ ABSL_GUARDED_BY(mutex_);  // by worker id
  // The data position of each serialized push key.
  std::map<std::string, uint64_t> positions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<uint64_t, uint64_t>, std::set<uint32_t>> accepted_
      ABSL_GUARDED_BY(mutex_);  // by (step, epoch)
  std::map<std::pair<uint32_t, uint64_t>, int> accepted_positions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> problems_ ABSL_GUARDED_BY(mutex_);
  uint64_t compared_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_JOB_CONTRIBUTION_AUDIT_H_

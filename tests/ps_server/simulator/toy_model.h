// The model that the simulated workers train, and the oracle that knows what its weights must be.
//
// A gradient is a pure function of shard, replica, step (or position) and weights, so that it can
// be computed again at any time. The optimizer is momentum with gradient clipping by the global
// norm. Everything is float32, so that a wrong order of summation changes bits. There is no
// network, no loss and no data.
//
// The oracle computes each version from the list of contributors that the coordinator decided. It
// also keeps the versions that rollbacks have abandoned. Nothing here is thread-safe.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_TOY_MODEL_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_TOY_MODEL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/wire/batch_division.h"
#include "protos/parameter_server.pb.h"
#include "ps_server/core/version_id.h"
#include "tests/ps_server/simulator/sim_config.h"

namespace pushpull::sim {

// The variables of one shard in one version.
struct ToyState {
  std::vector<float> weights;
  std::vector<float> momentum;
  friend bool operator==(const ToyState&, const ToyState&) = default;
};

// The gradient of one replica on one shard, and the number of samples that weights it.
struct ToyContribution {
  uint64_t samples = 0;
  std::vector<float> gradient;
};

ToyState InitialState(const SimConfig& config, uint32_t shard);
// Returns the gradient on one shard at these weights. `data` says which data it is of: the replica
// in asynchronous mode, DataOf(part) in synchronous mode. `number` is the step in synchronous mode
// and the position in asynchronous mode, here and in the functions below.
std::vector<float> Gradient(uint32_t shard, uint32_t data, uint64_t number,
                            const std::vector<float>& weights);
// Returns a number for the part of a batch. Different parts have different numbers.
uint32_t DataOf(const BatchPart& part);
// Async: returns the number of samples of a contribution. It changes only every four numbers,
// because the shard makes chunks ahead with the sample counts of the step before.
uint64_t Samples(uint32_t replica, uint64_t number);
// Returns whether the contribution is void (see SimConfig::void_one_in).
bool IsVoid(const SimConfig& config, uint32_t replica, uint64_t number);
// Returns the average of the gradients, weighted by samples and summed in the given order.
std::vector<float> Average(const std::vector<ToyContribution>& contributions);
// Writes the elements [first, first + average.size()) of the next version to `to`. `squared_norm`
// is that of the whole averaged gradient; if it is negative, nothing is clipped.
void UpdateRange(const ToyState& from, size_t first, const std::vector<float>& average,
                 double squared_norm, ToyState* to);
// Returns the next version of a whole shard. If `average` is empty, that is a copy of `from`.
ToyState Update(const ToyState& from, const std::vector<float>& average, double squared_norm);
// Returns the sum of the squares.
double SquaredNorm(const std::vector<float>& average);

// Identifies an asynchronous push by replica, grant and sequence.
using PushId = std::tuple<uint32_t, uint64_t, uint64_t>;
// What an asynchronous push was computed from.
struct ToyPush {
  uint64_t position = 0;           // The number of the batch in the replica's data.
  std::vector<uint64_t> versions;  // The version of the weights, by shard.
};

// The versions form a tree, because a new epoch may continue from any version. The current history
// is the path from the root to the job's newest version. `config` must outlive the oracle.
class Oracle {
 public:
  explicit Oracle(const SimConfig& config);

  // The index of a version in the tree.
  using Node = size_t;

  // The newest version of the current history.
  uint64_t version() const { return history_.size() - 1; }
  bool Has(uint64_t version) const { return version <= this->version(); }
  Node node(uint64_t version) const { return history_[version]; }
  const ToyState& state(uint64_t version, uint32_t shard) const {
    return nodes_[history_[version]].shards[shard];
  }

  // The epoch in which the version was decided. It is 0 for the initial version.
  uint64_t epoch(Node node) const { return nodes_[node].epoch; }
  // Returns whether `ancestor` is `node` or lies on the path from `node` to the root.
  bool IsAncestor(Node ancestor, Node node) const;
  // Returns the version with this number whose shards hold these values. Returns nullopt if there
  // is none, for example because the shards come from different histories.
  std::optional<Node> Find(uint64_t version, const std::vector<const ToyState*>& shards) const;

  // Records an asynchronous push when it is sent, so that Decide can compute its gradient.
  void RecordPush(const PushId& id, ToyPush push) { pushes_[id] = std::move(push); }
  // Sync: records the part of the batch that a clone computes under a grant.
  void RecordPart(uint32_t replica, uint64_t grant, const BatchPart& part) {
    parts_[{replica, grant}] = part;
  }
  // Computes the next version from the decided contributors. `shares`: how the batch of the step is
  // divided over the replicas (sync). Returns the rule that the list violates, or "".
  std::string Decide(const ps::ApplyRequest& request, const std::vector<int64_t>& shares);
  // Makes the path from the root to this version the current history.
  void GoOnFrom(Node node);
  // Describes the contributors of a version, as DescribeContributors does.
  const std::string& contributors(uint64_t version) const {
    return nodes_[history_[version]].contributors;
  }

 private:
  struct Version {
    Node parent = 0;
    uint64_t number = 0;
    uint64_t epoch = 0;
    std::vector<ToyState> shards;
    std::string contributors;
    std::optional<PushId> push;  // Only in asynchronous mode.
  };
  Node Insert(Version version);
  std::string CheckSync(const ps::ApplyRequest& request, const std::vector<int64_t>& shares) const;
  std::string CheckAsync(const ps::ApplyRequest& request) const;
  // Checks I10: each batch of a replica counts once and in order, except void batches.
  std::string CheckPosition(uint32_t replica, uint64_t position) const;

  const SimConfig& config_;
  std::vector<Version> nodes_;
  std::vector<Node> history_;  // The current history, by version.
  std::map<PushId, ToyPush> pushes_;
  std::map<std::pair<uint32_t, uint64_t>, BatchPart> parts_;  // By replica and grant.
};

// Describes the contributor list, without norms. Equal lists give equal texts.
std::string DescribeContributors(const ps::ApplyRequest& request);

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_TOY_MODEL_H_

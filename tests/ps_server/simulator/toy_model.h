// A model small enough to replay: gradients as a pure function of replica, step and weights, an
// optimizer with momentum and clipping, all in float32 whose sums depend on their order; and the
// oracle, which makes every version once, in one thread, from the contributor lists that were
// decided, and keeps the histories that the job has left.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_TOY_MODEL_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_TOY_MODEL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "protos/parameter_server.pb.h"
#include "ps_server/core/version_id.h"
#include "tests/ps_server/simulator/sim_config.h"

namespace pushpull::sim {

// The state of one shard.
struct ToyState {
  std::vector<float> weights;
  std::vector<float> momentum;
  friend bool operator==(const ToyState&, const ToyState&) = default;
};

struct ToyContribution {
  uint64_t samples = 0;
  std::vector<float> gradient;
};

ToyState InitialState(const SimConfig& config, uint32_t shard);
// Gradient of a replica for a step (sync) or for the batch of a position (async) at these weights.
std::vector<float> Gradient(uint32_t shard, uint32_t replica, uint64_t number,
                            const std::vector<float>& weights);
// The same for a few numbers in a row: chunks made ahead are weighed as the step before.
uint64_t Samples(uint32_t replica, uint64_t number);
// Whether the contribution is void, in a config that has such.
bool IsVoid(const SimConfig& config, uint32_t replica, uint64_t number);
// Average in the order given.
std::vector<float> Average(const std::vector<ToyContribution>& contributions);
// Writes elements [first, first + average.size()) of the next version. squared_norm < 0: no
// clipping.
void UpdateRange(const ToyState& from, size_t first, const std::vector<float>& average,
                 double squared_norm, ToyState* to);
// A whole version; a copy without an average.
ToyState Update(const ToyState& from, const std::vector<float>& average, double squared_norm);
double SquaredNorm(const std::vector<float>& average);

// Identifies an asynchronous push: replica, grant, sequence.
using PushId = std::tuple<uint32_t, uint64_t, uint64_t>;
// What it was made of.
struct ToyPush {
  uint64_t position = 0;           // of the batch in the replica's data
  std::vector<uint64_t> versions;  // by shard: of the weights
};

// Versions form a tree: an epoch goes on from any of them. The branch that the job is on is the
// current history.
class Oracle {
 public:
  explicit Oracle(const SimConfig& config);

  // Index of a version in the tree.
  using Node = size_t;

  // The newest version of the current history.
  uint64_t version() const { return history_.size() - 1; }
  bool Has(uint64_t version) const { return version <= this->version(); }
  Node node(uint64_t version) const { return history_[version]; }
  const ToyState& state(uint64_t version, uint32_t shard) const {
    return nodes_[history_[version]].shards[shard];
  }

  // The epoch in which the version was decided; 0 for the initial one.
  uint64_t epoch(Node node) const { return nodes_[node].epoch; }
  // `ancestor` is the node itself or lies on its way to the root.
  bool IsAncestor(Node ancestor, Node node) const;
  // The version with this number whose shards hold these values; nothing if they are of several
  // histories, or of none.
  std::optional<Node> Find(uint64_t version, const std::vector<const ToyState*>& shards) const;

  void RecordPush(const PushId& id, ToyPush push) { pushes_[id] = std::move(push); }
  // Makes the next version. Returns what is wrong with the list, or "".
  std::string Decide(const ps::ApplyRequest& request);
  // A new epoch goes on from this version.
  void GoOnFrom(Node node);
  // The list the version was made of, without norms.
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
    std::optional<PushId> push;  // async
  };
  Node Insert(Version version);
  std::string CheckSync(const ps::ApplyRequest& request) const;
  std::string CheckAsync(const ps::ApplyRequest& request) const;
  // I10: every batch of a replica once and in order; void ones are left out.
  std::string CheckPosition(uint32_t replica, uint64_t position) const;

  const SimConfig& config_;
  std::vector<Version> nodes_;
  std::vector<Node> history_;  // the current one, by version
  std::map<PushId, ToyPush> pushes_;
};

// Text that is equal for equal contributor lists.
std::string DescribeContributors(const ps::ApplyRequest& request);

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_TOY_MODEL_H_

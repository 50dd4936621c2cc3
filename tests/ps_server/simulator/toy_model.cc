#include "tests/ps_server/simulator/toy_model.h"

#include <cmath>
#include <numeric>

#include "absl/strings/str_format.h"

#include "common/base/random.h"

namespace pushpull::sim {
namespace {

constexpr float kMomentum = 0.9f;
constexpr float kLearningRate = 0.05f;
constexpr double kClipNorm = 1.0;

uint32_t Mix(uint32_t a, uint64_t b, uint32_t c, uint32_t d) {
  return Philox4x32({a, static_cast<uint32_t>(b), c, d}, {static_cast<uint32_t>(b >> 32), 7})[0];
}

}  // namespace

ToyState InitialState(const SimConfig& config, uint32_t shard) {
  ToyState state;
  for (int i = 0; i < config.elements(shard); ++i) {
    state.weights.push_back(1.0f + static_cast<float>(Mix(99, 0, shard, i) >> 8) / 16777216.0f);
    state.momentum.push_back(0.0f);
  }
  return state;
}

uint32_t DataOf(const BatchPart& part) {
  return static_cast<uint32_t>(1000 + part.first * (kBatchSize + 1) + part.samples);
}

std::vector<float> Gradient(uint32_t shard, uint32_t data, uint64_t number,
                            const std::vector<float>& weights) {
  std::vector<float> gradient(weights.size());
  for (uint32_t i = 0; i < weights.size(); ++i) {
    const uint32_t bits = Mix(data, number, shard, i);
    // The magnitudes vary, so that the order of summation changes the bits of the sum.
    const float noise = static_cast<float>(bits >> 8) / 16777216.0f - 0.5f;
    gradient[i] = std::ldexp(noise, static_cast<int>(bits & 7) - 4) + 0.1f * weights[i];
  }
  return gradient;
}

uint64_t Samples(uint32_t replica, uint64_t number) { return 1 + (replica * 7 + number / 4) % 9; }

bool IsVoid(const SimConfig& config, uint32_t replica, uint64_t number) {
  return config.void_one_in > 0 && Mix(replica, number, 1000, 5) % config.void_one_in == 0;
}

std::vector<float> Average(const std::vector<ToyContribution>& contributions) {
  std::vector<float> sum;
  uint64_t samples = 0;
  for (const ToyContribution& contribution : contributions) {
    sum.resize(contribution.gradient.size());
    samples += contribution.samples;
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += static_cast<float>(contribution.samples) * contribution.gradient[i];
    }
  }
  for (float& value : sum) value /= static_cast<float>(samples);
  return sum;
}

double SquaredNorm(const std::vector<float>& average) {
  double sum = 0;
  for (const float value : average) sum += static_cast<double>(value) * value;
  return sum;
}

void UpdateRange(const ToyState& from, size_t first, const std::vector<float>& average,
                 double squared_norm, ToyState* to) {
  const double norm = std::sqrt(std::max(squared_norm, 0.0));
  const float scale = norm > kClipNorm ? static_cast<float>(kClipNorm / norm) : 1.0f;
  for (size_t i = 0; i < average.size(); ++i) {
    const size_t at = first + i;
    to->momentum[at] = kMomentum * from.momentum[at] + average[i] * scale;
    to->weights[at] = from.weights[at] - kLearningRate * to->momentum[at];
  }
}

ToyState Update(const ToyState& from, const std::vector<float>& average, double squared_norm) {
  ToyState to = from;
  UpdateRange(from, 0, average, squared_norm, &to);
  return to;
}

// If the tree already has the version, because it was made from the same contributions before,
// Insert returns the existing node.
Oracle::Node Oracle::Insert(Version version) {
  for (Node node = 0; node < nodes_.size(); ++node) {
    Version& other = nodes_[node];
    const bool same = other.number == version.number && other.parent == version.parent &&
                      other.shards == version.shards;
    if (!same) continue;
    other.contributors = std::move(version.contributors);
    other.push = version.push;
    return node;
  }
  nodes_.push_back(std::move(version));
  return nodes_.size() - 1;
}

std::string DescribeContributors(const ps::ApplyRequest& request) {
  std::string text = absl::StrFormat("step %d:", request.step());
  for (const ps::Contribution& c : request.contributions()) {
    absl::StrAppendFormat(&text, " %d/%x/%d*%d", c.replica(), c.grant(), c.sequence(), c.samples());
  }
  return text;
}

Oracle::Oracle(const SimConfig& config) : config_(config) {
  Version version;
  for (uint32_t shard = 0; shard < config.shards; ++shard) {
    version.shards.push_back(InitialState(config, shard));
  }
  nodes_.push_back(std::move(version));
  history_ = {0};
}

bool Oracle::IsAncestor(Node ancestor, Node node) const {
  while (nodes_[node].number > nodes_[ancestor].number) node = nodes_[node].parent;
  return node == ancestor;
}

std::optional<Oracle::Node> Oracle::Find(uint64_t version,
                                         const std::vector<const ToyState*>& shards) const {
  // A step whose contributions are all void repeats the values of the version before it, so the
  // same values may occur on two branches. Any match is right, and the search takes the newest.
  for (Node node = nodes_.size(); node-- > 0;) {
    if (nodes_[node].number != version) continue;
    bool same = true;
    for (size_t shard = 0; shard < shards.size(); ++shard) {
      same = same && shards[shard] != nullptr && nodes_[node].shards[shard] == *shards[shard];
    }
    if (same) return node;
  }
  return std::nullopt;
}

void Oracle::GoOnFrom(Node node) {
  history_.assign(nodes_[node].number + 1, 0);
  for (uint64_t number = nodes_[node].number; number > 0; --number) {
    history_[number] = node;
    node = nodes_[node].parent;
  }
}

std::string Oracle::CheckSync(const ps::ApplyRequest& request,
                              const std::vector<int64_t>& shares) const {
  const uint32_t replicas = static_cast<uint32_t>(shares.size());
  if (std::accumulate(shares.begin(), shares.end(), int64_t{0}) != kBatchSize) {
    return "I11: the shares do not sum to the batch";
  }
  if (!config_.shares_by_speed && shares != DivideEqually(kBatchSize, shares.size())) {
    return "I11: the shares are not equal";
  }
  int64_t last = -1;
  uint32_t expected = 0;
  for (uint32_t replica = 0; replica < replicas; ++replica) {
    expected += !IsVoid(config_, replica, request.step());
  }
  for (const ps::Contribution& c : request.contributions()) {
    if (static_cast<int64_t>(c.replica()) <= last)
      return "I2: the replicas are not distinct or not in order";
    last = c.replica();
    if (c.replica() >= replicas) return "the list contains a replica that does not exist";
    if (IsVoid(config_, c.replica(), request.step()))
      return "the list contains a void contribution";
    const auto part = parts_.find({c.replica(), c.grant()});
    if (part == parts_.end()) return "no worker has computed this contribution";
    if (!(part->second == PartOf(shares, c.replica()))) {
      return absl::StrFormat("I11: replica %d has computed samples from %d, of another division",
                             c.replica(), part->second.first);
    }
    if (c.samples() != static_cast<uint64_t>(part->second.samples)) {
      return "wrong number of samples";
    }
  }
  const uint32_t have = request.contributions_size();
  if (have < expected && config_.mode == Mode::kSyncWait) return "a replica is missing";
  if (have < expected && have < config_.min_contributors) return "too few contributors";
  return "";
}

std::string Oracle::CheckAsync(const ps::ApplyRequest& request) const {
  if (request.contributions_size() != 1)
    return "an asynchronous step does not have exactly one push";
  const ps::Contribution& c = request.contributions(0);
  const auto push = pushes_.find({c.replica(), c.grant(), c.sequence()});
  if (push == pushes_.end()) return "no worker sent this push";
  for (const uint64_t base : push->second.versions) {
    if (base >= request.step()) return "a push was computed from a version that did not exist";
    if (config_.max_staleness > 0 && request.step() - 1 - base > config_.max_staleness) {
      return "a push is staler than allowed";
    }
  }
  if (c.samples() != Samples(c.replica(), push->second.position)) return "wrong number of samples";
  return CheckPosition(c.replica(), push->second.position);
}

std::string Oracle::CheckPosition(uint32_t replica, uint64_t position) const {
  uint64_t next = 0;
  for (const Node node : history_) {
    if (!nodes_[node].push.has_value() || std::get<0>(*nodes_[node].push) != replica) continue;
    next = pushes_.at(*nodes_[node].push).position + 1;
  }
  if (position < next) {
    return absl::StrFormat("I10: batch %d of replica %d counts twice or too late", position,
                           replica);
  }
  while (IsVoid(config_, replica, next)) ++next;
  if (position == next) return "";
  return absl::StrFormat("I10: batch %d of replica %d is skipped and batch %d counts instead", next,
                         replica, position);
}

std::string Oracle::Decide(const ps::ApplyRequest& request, const std::vector<int64_t>& shares) {
  if (request.step() != version() + 1) return "a step is out of order";
  const std::string problem = config_.sync() ? CheckSync(request, shares) : CheckAsync(request);
  if (!problem.empty()) return problem;
  Version next;
  next.parent = history_.back();
  next.number = request.step();
  next.epoch = request.epoch();
  next.contributors = DescribeContributors(request);
  std::vector<std::vector<float>> averages;
  double squared_norm = config_.measure_norms ? 0 : -1;
  for (uint32_t shard = 0; shard < config_.shards; ++shard) {
    std::vector<ToyContribution> contributions;
    for (const ps::Contribution& c : request.contributions()) {
      uint64_t base = request.step() - 1;
      uint64_t number = request.step();
      uint32_t data = c.replica();
      if (config_.sync()) data = DataOf(parts_.at({c.replica(), c.grant()}));
      if (!config_.sync()) {
        next.push = PushId{c.replica(), c.grant(), c.sequence()};
        base = pushes_.at(*next.push).versions[shard];
        number = pushes_.at(*next.push).position;
      }
      contributions.push_back(
          {c.samples(), Gradient(shard, data, number, state(base, shard).weights)});
    }
    averages.push_back(Average(contributions));
    if (config_.measure_norms) squared_norm += SquaredNorm(averages.back());
  }
  for (uint32_t shard = 0; shard < config_.shards; ++shard) {
    next.shards.push_back(Update(state(version(), shard), averages[shard], squared_norm));
  }
  history_.push_back(Insert(std::move(next)));
  return "";
}

}  // namespace pushpull::sim

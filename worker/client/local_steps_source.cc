// Tested by tests/worker/client/local_steps_source_test.cc.
// Tested by tests/worker/client/local_steps_training_test.cc.
#include "worker/client/local_steps_source.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "common/optimizer/initial_state.h"

namespace pushpull {
namespace {

// WriteContribution announces the contribution in parts of this size: 256 KiB.
constexpr int64_t kAnnouncedElements = 64 * 1024;

// Collects the results of a round's mini-batches.
class RoundResult {
 public:
  void Add(const GradientResult& result) {
    const double weight = static_cast<double>(result.samples);
    sum_.samples += result.samples;
    sum_.loss += weight * result.loss;
    for (const ps::Metric& metric : result.metrics) {
      const auto found = std::find_if(sums_.begin(), sums_.end(), [&](const MetricSum& sum) {
        return sum.name == metric.name();
      });
      MetricSum& sum = found == sums_.end() ? sums_.emplace_back() : *found;
      sum.name = metric.name();
      sum.value += weight * metric.value();
      sum.samples += weight;
    }
  }

  // Returns the means over the samples. Without samples, the result is void.
  GradientResult Mean() const {
    GradientResult mean;
    mean.samples = sum_.samples;
    if (mean.samples == 0) return mean;
    mean.loss = sum_.loss / static_cast<double>(mean.samples);
    for (const MetricSum& sum : sums_) {
      if (sum.samples == 0) continue;
      ps::Metric& metric = mean.metrics.emplace_back();
      metric.set_name(sum.name);
      metric.set_value(sum.value / sum.samples);
    }
    return mean;
  }

 private:
  struct MetricSum {
    std::string name;
    double value = 0.0;
    double samples = 0.0;
  };
  GradientResult sum_;
  std::vector<MetricSum> sums_;  // in the order in which they first appeared
};

}  // namespace

LocalStepsSource::LocalStepsSource(GradientSource* source, const VariableLayout* layout,
                                   const config::TrainConfig& train_config, ThreadPool* pool,
                                   CheckFn check)
    : source_(source),
      layout_(layout),
      local_steps_(train_config.local_steps()),
      optimizer_(OptimizerSpec::OfLocalSteps(train_config)),
      sharding_(layout->total_elements(), 1),
      pass_(layout, sharding_, 0, optimizer_, pool),
      check_(std::move(check)) {
  for (int64_t i = 0; i < layout->num_variables(); ++i) {
    const VariableSpec& variable = layout->variables()[i];
    if (variable.kind != VariableKind::kMovingStatistic || variable.frozen) continue;
    RoundStatistic& statistic = statistics_.emplace_back();
    statistic.variable = i;
    statistic.mean.resize(layout->num_elements(i));
  }
}

void LocalStepsSource::StageCompute(uint64_t position, uint32_t replica,
                                    absl::Span<const float> weights) {
  source_->StageCompute(position * local_steps_, replica, weights);
}

void LocalStepsSource::StageWeights(absl::Span<const float> weights, int64_t first, int64_t end) {
  source_->StageWeights(weights, first, end);
}

void LocalStepsSource::NoteWeights(uint64_t version, absl::Span<const float> weights) {
  version_ = version;
  source_->NoteWeights(version, weights);
}

absl::Status LocalStepsSource::LoadInput(uint64_t position, uint32_t replica) {
  return source_->LoadInput(position * local_steps_, replica);
}

absl::Status LocalStepsSource::AllocateState() {
  if (!vectors_.empty()) return absl::OkStatus();
  std::vector<std::shared_ptr<float>> vectors;
  for (int i = 0; i < 1 + optimizer_.num_slots(); ++i) {
    PP_ASSIGN_OR_RETURN(vectors.emplace_back(), source_->AllocateVector(layout_->total_elements()));
    CHECK_EQ(reinterpret_cast<uintptr_t>(vectors.back().get()) % kVectorAlignment, 0u);
  }
  local_.weights = vectors[0].get();
  for (int slot = 0; slot < optimizer_.num_slots(); ++slot) {
    local_.slots[slot] = vectors[1 + slot].get();
  }
  vectors_ = std::move(vectors);
  return absl::OkStatus();
}

void LocalStepsSource::BeginRound(absl::Span<const float> weights) {
  const auto copy = [&](int64_t variable, int64_t first, int64_t count, float* out) {
    std::copy_n(weights.data() + layout_->offset(variable) + first, count, out);
  };
  FillInitialState(*layout_, sharding_.shard(0), optimizer_, copy, local_);
  for (RoundStatistic& statistic : statistics_) {
    statistic.total_weight = 0.0;
    std::fill(statistic.mean.begin(), statistic.mean.end(), 0.0f);
  }
}

void LocalStepsSource::AddStatistics(absl::Span<const float> gradient) {
  for (RoundStatistic& statistic : statistics_) {
    const float* const added = gradient.data() + layout_->offset(statistic.variable);
    const double decay = layout_->variables()[statistic.variable].moving_average_decay;
    const double before = decay * statistic.total_weight;
    statistic.total_weight = before + 1.0;
    const auto kept = static_cast<float>(before / statistic.total_weight);
    const auto share = static_cast<float>(1.0 / statistic.total_weight);
    for (size_t k = 0; k < statistic.mean.size(); ++k) {
      statistic.mean[k] = kept * statistic.mean[k] + share * added[k];
    }
  }
}

absl::Status LocalStepsSource::Update(uint32_t h, uint64_t samples,
                                      absl::Span<const float> gradient) {
  GradientContribution contribution;
  contribution.samples = samples;
  for (int chunk = 0; chunk < sharding_.num_chunks(0); ++chunk) {
    const ElementRange range = sharding_.chunk(0, chunk);
    const char* const data = reinterpret_cast<const char*>(gradient.data() + range.begin);
    contribution.chunks.push_back(
        {ps::FLOAT32, {nullptr, data, static_cast<size_t>(range.size()) * sizeof(float)}});
  }
  const auto contributions = absl::MakeConstSpan(&contribution, 1);
  const UpdateNumber number(h + 1, version_ * local_steps_ + h);
  std::vector<double> norms;
  if (optimizer_.measures_norms()) {
    PP_ASSIGN_OR_RETURN(norms, pass_.MeasureNorms(number, contributions, local_.AsConst()));
  }
  return pass_.Run(number, contributions, norms, local_.AsConst(), local_);
}

absl::StatusOr<GradientResult> LocalStepsSource::Compute(uint64_t position, uint32_t replica,
                                                         absl::Span<const float> weights,
                                                         absl::Span<float> gradient,
                                                         absl::FunctionRef<void(int64_t)> advance) {
  PP_RETURN_IF_ERROR(AllocateState());
  BeginRound(weights);
  const absl::Span<const float> local(local_.weights, weights.size());
  RoundResult round;
  for (uint32_t h = 0; h < local_steps_; ++h) {
    const uint64_t batch = position * local_steps_ + h;
    if (h > 0) {
      PP_RETURN_IF_ERROR(check_());
      PP_RETURN_IF_ERROR(await_input_([&] { return source_->LoadInput(batch, replica); }));
    }
    // The first mini-batch gets the pulled weights themselves, which the other source may have
    // staged while they arrived.
    PP_ASSIGN_OR_RETURN(const GradientResult result,
                        source_->Compute(batch, replica, h == 0 ? weights : local, gradient,
                                         /*advance=*/[](int64_t) {}));
    if (!std::isfinite(result.loss)) return result;
    round.Add(result);
    PP_RETURN_IF_ERROR(Update(h, result.samples, gradient));
    if (result.samples > 0) AddStatistics(gradient);
  }
  WriteContribution(weights, gradient, advance);
  // The other source may show the weights of its last Compute as those that were pulled last.
  source_->NoteWeights(version_, weights);
  return round.Mean();
}

void LocalStepsSource::WriteContribution(absl::Span<const float> weights,
                                         absl::Span<float> gradient,
                                         absl::FunctionRef<void(int64_t)> advance) const {
  int64_t announced = layout_->total_elements();
  auto statistic = statistics_.rbegin();
  for (int64_t i = layout_->num_variables() - 1; i >= 0; --i) {
    const VariableSpec& variable = layout_->variables()[i];
    const int64_t begin = layout_->offset(i);
    for (int64_t end = begin + layout_->num_elements(i); end > begin;) {
      const int64_t first = std::max(begin, end - kAnnouncedElements);
      const float* const local = local_.weights;
      if (variable.frozen) {
        std::fill(gradient.begin() + first, gradient.begin() + end, 0.0f);
      } else if (variable.kind == VariableKind::kMovingStatistic) {
        std::copy(statistic->mean.begin() + (first - begin),
                  statistic->mean.begin() + (end - begin), gradient.begin() + first);
      } else {
        for (int64_t k = first; k < end; ++k) gradient[k] = weights[k] - local[k];
      }
      end = first;
      if (announced - first < kAnnouncedElements) continue;
      announced = first;
      advance(announced);
    }
    if (statistic != statistics_.rend() && statistic->variable == i) ++statistic;
  }
  if (announced > 0) advance(0);
}

}  // namespace pushpull

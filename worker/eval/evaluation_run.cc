#include "worker/eval/evaluation_run.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

#include "common/base/file_system.h"
#include "common/base/status_macros.h"
#include "common/model/model_layout.h"
#include "worker/data/check_examples.h"
#include "worker/data/class_names.h"
#include "worker/data/image_source_factory.h"
#include "worker/sampling/sampler.h"

namespace pushpull {
namespace {

// Decoding is cheap compared with the network, so a few threads suffice.
constexpr int kMaxInputThreads = 4;

// The examples of a data set that are evaluated, as a data set of its own.
class EvaluatedExamples final : public ImageSource {
 public:
  // `source` must outlive the object.
  EvaluatedExamples(const ImageSource* source, const Sampler& sampler) : source_(source) {
    std::vector<Sample> batch;
    for (int64_t step = 0; step == 0 || !batch.empty(); ++step) {
      sampler.GetBatch(step, 0, &batch);
      for (const Sample& sample : batch) indices_.push_back(sample.index);
    }
  }
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  int num_classes() const override { return source_->num_classes(); }
  std::string describe() const override { return source_->describe(); }
  absl::Status Get(int64_t index, Example* example) const override {
    return source_->Get(indices_[index], example);
  }
  absl::Status Check(ThreadPool* pool, StoppedFn stopped) const override {
    return CheckExamples(*this, describe(), pool, stopped,
                         [this](int64_t i, Example* example) { return Get(i, example); });
  }

 private:
  const ImageSource* const source_;
  std::vector<int64_t> indices_;  // in the source
};

}  // namespace

int64_t NumEvaluated(const config::EvalConfig& config, int64_t size) {
  if (!config.has_num_examples()) return size;
  const int64_t wanted = config.num_examples();
  if (wanted < size) {
    LOG(WARNING) << "eval_config.num_examples is " << wanted << ", eval_input_reader has " << size
                 << " examples: the metrics are those of " << wanted
                 << " of them. Remove num_examples to evaluate all";
  } else if (wanted > size) {
    LOG(INFO) << "eval_config.num_examples is " << wanted << ", eval_input_reader has " << size
              << " examples: each is evaluated once";
  }
  return std::min(wanted, size);
}

EvaluationRun::EvaluationRun(NetworkSpec spec, VariableLayout layout, const ComputeOptions& compute)
    : spec_(std::move(spec)), layout_(std::move(layout)), compute_(compute) {}

absl::StatusOr<std::unique_ptr<EvaluationRun>> EvaluationRun::Create(
    const config::TrainEvalPipelineConfig& config, const std::string& data_dir,
    const ComputeOptions& compute, const std::atomic<bool>& stop) {
  NetworkSpec spec = BuildNetworkSpec(config.model());
  VariableLayout layout = BuildVariableLayout(config);
  std::unique_ptr<EvaluationRun> result(
      new EvaluationRun(std::move(spec), std::move(layout), compute));

  ImageSourceOptions source_options;
  source_options.data_dir = data_dir;
  source_options.num_classes = result->spec_.num_classes;
  source_options.annotation =
      config.model().has_ssd() ? Annotation::kBoxes : Annotation::kImageLabel;
  source_options.field_name = "eval_input_reader";
  source_options.stopped = [&stop] { return stop.load(); };
  PP_ASSIGN_OR_RETURN(result->source_,
                      OpenImageSource(config.eval_input_reader(0), source_options));
  PP_RETURN_IF_ERROR(CheckClassFolders(config, data_dir, result->source_->class_names()));
  PosixFileSystem files;
  PP_RETURN_IF_ERROR(CheckLabelMaps(files, config, data_dir));
  LOG(INFO) << "evaluating on " << result->source_->describe();
  result->num_examples_ = NumEvaluated(config.eval_config(), result->source_->size());

  SamplerOptions sampler_options;
  sampler_options.mode = SamplerOptions::Mode::kEvaluate;
  sampler_options.num_examples = result->num_examples_;
  // Classes often follow each other in a classifier's data. The detections of a detector carry the
  // numbers of its examples, and other programs expect the first ones.
  if (config.model().has_classifier()) sampler_options.spread_over = result->source_->size();
  sampler_options.batch_size =
      std::min<int64_t>(config.eval_config().batch_size(), result->num_examples_);
  sampler_options.shuffle = false;
  const Sampler sampler(sampler_options);
  LOG(INFO) << "reading the " << result->num_examples_ << " images that are evaluated";
  // An image that cannot be read would end each evaluation, and only the first one would be named.
  PP_RETURN_IF_ERROR(EvaluatedExamples(result->source_.get(), sampler)
                         .Check(result->pool(), source_options.stopped));
  InputPipelineOptions input_options;
  input_options.shape = InputShapeOf(result->spec_);
  input_options.num_threads = std::min(compute.threads, kMaxInputThreads);

  RunnerOptions network_options;
  network_options.max_batch = sampler_options.batch_size;
  network_options.training = false;
  network_options.packed_images = compute.device != nullptr;
  PP_ASSIGN_OR_RETURN(result->network_,
                      result->compute_.MakeRunner(result->spec_, result->layout_, network_options));
  input_options.format =
      network_options.packed_images ? PixelFormat::kPackedImages : PixelFormat::kFloat;
  PP_ASSIGN_OR_RETURN(result->input_,
                      InputPipeline::Create(result->source_.get(), sampler, input_options,
                                            [network = result->network_.get()](int64_t b) {
                                              return network->AllocateImages(b);
                                            }));
  return result;
}

double EvaluationRun::UnsettledShare(int64_t num_updates) const {
  return InitialStatisticsShare(spec_, num_updates);
}

absl::Status EvaluationRun::ForEachBatch(
    absl::Span<const float> variables, int64_t num_updates, const std::atomic<bool>& stop,
    const std::function<void(int64_t done, int64_t total)>& progress,
    absl::FunctionRef<absl::Status(const InputBatch& input, const StepResult& result)> use) {
  network_->StageVariables(variables, 0, static_cast<int64_t>(variables.size()));
  int64_t examples = 0;
  for (int64_t step = 0; examples < num_examples_; ++step) {
    if (stop.load()) return absl::CancelledError("stopped during an evaluation");
    PP_ASSIGN_OR_RETURN(const InputBatch* input, input_->Next(step, 0));
    objects_.Assign(input->boxes, input->windows);
    ImageBatch<float> batch;
    batch.images = input->images;
    batch.packed_images = input->packed_images;
    batch.labels = input->labels.data();
    batch.samples = input->n;
    batch.objects = objects_.spans();
    PP_ASSIGN_OR_RETURN(const StepResult result, network_->Evaluate(variables, batch, num_updates));
    PP_RETURN_IF_ERROR(use(*input, result));
    examples += result.samples;
    if (progress) progress(examples, num_examples_);
  }
  return absl::OkStatus();
}

}  // namespace pushpull

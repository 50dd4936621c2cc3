// Measures the input pipeline: images per second and thread that are decoded, augmented, resized
// and batched. scripts/bench/input_pipeline adds a comparison.
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/clock.h"
#include "common/base/file_system.h"
#include "common/base/status_macros.h"
#include "common/base/thread_pool.h"
#include "common/cli/exit_codes.h"
#include "common/cli/main_support.h"
#include "scripts/bench/median.h"
#include "worker/data/image_cache.h"
#include "worker/data/image_source_factory.h"
#include "worker/data/input_pipeline.h"

ABSL_FLAG(std::string, voc, "", "Pascal VOC folder with JPEG images");
ABSL_FLAG(std::string, label_map, "", "label map of its classes, as make_records writes it");
ABSL_FLAG(std::string, split, "train", "list in ImageSets/Main");
ABSL_FLAG(int, size, 300, "side of the network's input");
ABSL_FLAG(int, batch, 24, "images per batch");
ABSL_FLAG(int, threads, 1, "threads that decode");
ABSL_FLAG(double, seconds, 5.0, "length of the measurement");
ABSL_FLAG(std::string, cache, "",
          "folder for a cache of decoded images: also measured, alternating, as a CPU and as a GPU "
          "takes them");
ABSL_FLAG(int, cache_max_side, 0, "longest side stored there; 0: as decoded");
ABSL_FLAG(int, repeats, 1, "measurements; with --cache, rounds whose median ratios are printed");
ABSL_FLAG(bool, augment, true, "random flip and ssd_random_crop");

namespace pushpull {
namespace {

absl::StatusOr<std::unique_ptr<ImageSource>> OpenImages() {
  config::InputReader reader;
  reader.mutable_voc_input_reader()->set_path(absl::GetFlag(FLAGS_voc));
  reader.mutable_voc_input_reader()->set_split(absl::GetFlag(FLAGS_split));
  reader.set_label_map_path(absl::GetFlag(FLAGS_label_map));
  ImageSourceOptions options;
  options.num_classes = 1000;
  options.field_name = "--voc";
  options.annotation = Annotation::kBoxes;
  return OpenImageSource(reader, options);
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenCache() {
  ImageCacheOptions options;
  options.folder = absl::GetFlag(FLAGS_cache);
  options.max_side = absl::GetFlag(FLAGS_cache_max_side);
  PP_ASSIGN_OR_RETURN(std::unique_ptr<ImageSource> source, OpenImages());
  PosixFileSystem files;
  ThreadPool pool(absl::GetFlag(FLAGS_threads));
  SteadyClock clock;
  PP_RETURN_IF_ERROR(PrepareImageCache(files, *source, options, &pool, &clock, {}));
  return OpenImageCache(files, std::move(source), options);
}

absl::StatusOr<double> MeasureRate(const ImageSource* source, PixelFormat format) {
  SamplerOptions sampling;
  sampling.num_examples = source->size();
  sampling.batch_size = absl::GetFlag(FLAGS_batch);
  const Sampler sampler(sampling);
  InputPipelineOptions options;
  const int size = absl::GetFlag(FLAGS_size);
  options.shape = {size, size, 3};
  options.num_threads = absl::GetFlag(FLAGS_threads);
  options.format = format;
  if (absl::GetFlag(FLAGS_augment)) {
    config::TrainConfig train;
    train.add_data_augmentation_options()->mutable_random_horizontal_flip();
    train.add_data_augmentation_options()->mutable_ssd_random_crop();
    options.augmentation = ParseAugmentation(train.data_augmentation_options());
  }
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<InputPipeline> pipeline,
                      InputPipeline::Create(source, sampler, options));
  using Clock = std::chrono::steady_clock;
  constexpr int kWarmUpBatches = 3;
  Clock::time_point start;
  int64_t images = 0;
  double seconds = 0.0;
  for (int64_t step = 0; step <= kWarmUpBatches || seconds < absl::GetFlag(FLAGS_seconds); ++step) {
    PP_ASSIGN_OR_RETURN(const InputBatch* batch, pipeline->Next(step, 0));
    if (step < kWarmUpBatches) {
      start = Clock::now();
      continue;
    }
    images += batch->n;
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return static_cast<double>(images) / seconds;
}

absl::Status Run() {
  for (const auto& [name, value] : {std::pair("--batch", absl::GetFlag(FLAGS_batch)),
                                    std::pair("--size", absl::GetFlag(FLAGS_size)),
                                    std::pair("--threads", absl::GetFlag(FLAGS_threads)),
                                    std::pair("--repeats", absl::GetFlag(FLAGS_repeats))}) {
    if (value < 1) return UsageError(absl::StrCat(name, " is ", value, ", expected at least 1"));
  }
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<ImageSource> images, OpenImages());
  std::unique_ptr<ImageSource> cache;
  if (!absl::GetFlag(FLAGS_cache).empty()) {
    PP_ASSIGN_OR_RETURN(cache, OpenCache());
  }
  struct Way {
    std::string name;
    const ImageSource* source;
    PixelFormat format;
    std::vector<double> rates = {};
    std::vector<double> ratios = {};  // to the rate of the first way in the same round
  };
  std::vector<Way> ways = {{"", images.get(), PixelFormat::kFloat}};
  if (cache != nullptr) {
    ways.push_back(
        {absl::StrCat(" from the ", cache->describe()), cache.get(), PixelFormat::kFloat});
    ways.push_back({" from the cache, resized by a GPU", cache.get(), PixelFormat::kPackedImages});
  }
  for (int i = 0; i < absl::GetFlag(FLAGS_repeats); ++i) {
    for (Way& way : ways) {
      PP_ASSIGN_OR_RETURN(const double rate, MeasureRate(way.source, way.format));
      way.rates.push_back(rate);
      way.ratios.push_back(rate / ways[0].rates.back());
    }
  }
  for (const Way& way : ways) {
    std::cout << absl::StrFormat("%.1f images/s with %d threads%s", Median(way.rates),
                                 absl::GetFlag(FLAGS_threads), way.name);
    if (&way != &ways[0]) std::cout << absl::StrFormat(": ratio %.1f", Median(way.ratios));
    std::cout << "\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  pushpull::InitMain(argc, argv, {"Measures the input pipeline on JPEG images."});
  return pushpull::FinishMain(pushpull::Run());
}

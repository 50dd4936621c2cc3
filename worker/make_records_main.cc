// make_records turns data sets into TFRecord files of tf.Examples, and checks existing files.
// Tested by tests/e2e/make_records_test.py.
#include <atomic>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "common/base/file_system.h"
#include "common/base/num_cores.h"
#include "common/base/status_macros.h"
#include "common/base/thread_pool.h"
#include "common/base/utf8.h"
#include "common/cli/exit_codes.h"
#include "common/cli/flag_checks.h"
#include "common/cli/main_support.h"
#include "common/cli/print_result.h"
#include "common/cli/progress_line.h"
#include "common/cli/stop_signal.h"
#include "worker/data/label_map.h"
#include "worker/data/record_source.h"
#include "worker/records/annotated_set.h"
#include "worker/records/record_check.h"
#include "worker/records/record_writer.h"

ABSL_FLAG(std::string, format, "", "format of the input: voc, coco, image_folder or idx");
ABSL_FLAG(std::string, input, "", "folder of the data set");
ABSL_FLAG(std::string, split, "",
          "which part of it: train means ImageSets/Main/train.txt (voc), annotations/"
          "instances_train.json and train/ (coco), train-images-idx3-ubyte (idx, where test means "
          "t10k-...), or the folder train in the input (image_folder; empty: the input itself)");
ABSL_FLAG(std::string, label_map, "",
          "label map (.pbtxt) with the ids of the classes; default: derived from the data set and "
          "written to OUTPUT.pbtxt. With --check: the label map of the existing records");
ABSL_FLAG(
    std::string, output, "",
    "prefix of the files to write: OUTPUT-00000-of-00001 ...; its folder is created if it does not "
    "exist");
ABSL_FLAG(int, shards, 1, "number of files to write");
ABSL_FLAG(bool, skip_bad, false,
          "leave out images and boxes that cannot be used; default: list them and write nothing");
ABSL_FLAG(
    std::string, check, "",
    "instead of writing: check existing records (file, glob or name@10) and list the problems");
ABSL_FLAG(int, threads, 0, "CPU threads; 0: one per core");

namespace pushpull {
namespace {

absl::Status CheckFlags() {
  PP_RETURN_IF_ERROR(CheckAtLeast("threads", absl::GetFlag(FLAGS_threads), 0));
  const std::string format = absl::GetFlag(FLAGS_format);
  const std::string input = absl::GetFlag(FLAGS_input);
  const std::string output = absl::GetFlag(FLAGS_output);
  const std::string split = absl::GetFlag(FLAGS_split);
  const int shards = absl::GetFlag(FLAGS_shards);
  if (!absl::GetFlag(FLAGS_check).empty()) {
    if (!format.empty() || !input.empty() || !output.empty() || !split.empty()) {
      return UsageError(
          "--check reads existing records; leave out --format, --input, --split and "
          "--output");
    }
    return CheckNotSet({"shards", "skip_bad"}, "--check");
  }
  if (!ParseSetFormat(format)) {
    return UsageError(
        absl::StrCat("--format: expected voc, coco, image_folder or idx, got \"", format, "\""));
  }
  if (input.empty()) return UsageError("--input is missing: the folder of the data set");
  if (split.empty() && format != "image_folder") {
    return UsageError("--split is missing: train, for example");
  }
  if (output.empty() || absl::EndsWith(output, "/")) {
    return UsageError(
        "--output: expected the prefix of the files to write, for example data/train");
  }
  if (shards < 1 || shards > kMaxRecordShards) {
    return UsageError(absl::StrCat("--shards: expected 1 to ", kMaxRecordShards, ", got ", shards));
  }
  return absl::OkStatus();
}

// Prints "make_records: 1200/5011 images" on stderr. On a terminal it updates one line; elsewhere
// it prints a new line every 30 seconds and at the end.
class ProgressPrinter {
 public:
  ProgressPrinter() : is_terminal_(ProgressOptionsFor(2).is_terminal) {}
  ~ProgressPrinter() {
    if (open_) std::cerr << "\n";
  }
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

  void Show(int64_t done, int64_t total) {
    const absl::Time now = absl::Now();
    const absl::Duration interval = is_terminal_ ? absl::Milliseconds(200) : absl::Seconds(30);
    if (done < total && now - last_ < interval) return;
    last_ = now;
    std::cerr << (is_terminal_ ? "\r" : "") << "make_records: " << done << "/" << total << " images"
              << (is_terminal_ ? "" : "\n") << std::flush;
    open_ = is_terminal_;
  }

 private:
  const bool is_terminal_;
  bool open_ = false;  // a refreshed line without its newline
  absl::Time last_ = absl::InfinitePast();
};

// Prints the summary on stdout, and the problems, the clipped boxes and the damaged images on
// stderr.
absl::Status Print(const RecordSummary& summary, const std::string& label_map) {
  for (const std::string& problem : summary.problems) std::cerr << problem << "\n";
  for (const std::string& box : summary.clipped) std::cerr << box << "\n";
  for (const std::string& image : summary.damaged) std::cerr << image << "; it is used\n";
  nlohmann::ordered_json result = {{"images", summary.num_images},
                                   {"boxes", summary.num_boxes},
                                   {"bad_images", summary.num_bad_images},
                                   {"bad_boxes", summary.num_bad_boxes},
                                   {"clipped_boxes", summary.clipped.size()},
                                   {"damaged_images", summary.damaged.size()}};
  if (!summary.files.empty()) result["files"] = summary.files;
  if (!label_map.empty()) result["label_map"] = label_map;
  return PrintResult(std::cout, absl::StrCat(JsonLine(result), "\n"));
}

std::string Count(const RecordSummary& summary) {
  return absl::StrCat(summary.num_bad_images, " images and ", summary.num_bad_boxes,
                      " boxes cannot be used");
}

absl::Status Check(const RecordProgress& progress, ThreadPool* pool) {
  PosixFileSystem files;
  RecordSourceOptions options;
  options.input_paths = {absl::GetFlag(FLAGS_check)};
  options.annotation = Annotation::kEither;
  options.num_classes = LabelMap::kMaxId;
  if (const std::string path = absl::GetFlag(FLAGS_label_map); !path.empty()) {
    PP_ASSIGN_OR_RETURN(options.label_map, LabelMap::Load(files, path));
    options.num_classes = options.label_map->num_classes();
  }
  PP_ASSIGN_OR_RETURN(
      const std::unique_ptr<RecordSource> source,
      RecordSource::Open(files, std::move(options), [&progress] { return progress.stop->load(); }));
  PP_ASSIGN_OR_RETURN(const RecordSummary summary, CheckRecords(*source, progress, pool));
  PP_RETURN_IF_ERROR(Print(summary, ""));
  if (summary.problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(absl::GetFlag(FLAGS_check), ": ", Count(summary)));
}

absl::Status Write(const RecordProgress& progress, ThreadPool* pool) {
  PosixFileSystem files;
  std::optional<LabelMap> given;
  if (const std::string path = absl::GetFlag(FLAGS_label_map); !path.empty()) {
    PP_ASSIGN_OR_RETURN(given, LabelMap::Load(files, path));
  }
  PP_ASSIGN_OR_RETURN(
      const std::unique_ptr<AnnotatedSet> set,
      OpenAnnotatedSet(&files, *ParseSetFormat(absl::GetFlag(FLAGS_format)),
                       absl::GetFlag(FLAGS_input), absl::GetFlag(FLAGS_split), given));
  RecordWriterOptions options;
  options.output = absl::GetFlag(FLAGS_output);
  options.num_shards = absl::GetFlag(FLAGS_shards);
  options.bad_data = absl::GetFlag(FLAGS_skip_bad) ? BadData::kSkip : BadData::kRefuse;
  options.progress = progress;
  PP_ASSIGN_OR_RETURN(const RecordSummary summary, WriteRecords(&files, *set, options, pool));
  std::string label_map;
  if (!given && !summary.files.empty()) {
    label_map = absl::StrCat(options.output, ".pbtxt");
    PP_RETURN_IF_ERROR(WriteFileAtomically(files, label_map, set->label_map().ToText()));
  }
  PP_RETURN_IF_ERROR(Print(summary, label_map));
  if (!summary.files.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(absl::GetFlag(FLAGS_input), ": ", Count(summary), "; nothing is written",
                   summary.num_images > 0 ? ". Correct them, or leave them out with --skip_bad"
                                          : ", no image is left"));
}

int Main(int argc, char** argv) {
  MainOptions main_options;
  main_options.usage =
      "Turns a data set (Pascal VOC, COCO, folders of images, IDX) into TFRecord shards, or checks "
      "existing ones with --check.";
  const MainArguments arguments = InitMain(argc, argv, main_options);
  if (arguments.check_config) {
    return FinishMain(UsageError("--check_config: make_records takes no pipeline config"));
  }
  if (absl::Status flags = CheckFlags(); !flags.ok()) return FinishMain(flags);

  std::atomic<bool> stop = false;
  const std::unique_ptr<StopSignal> signal = StopSignal::Install(
      [&](int) { stop = true; }, {.closed_pipe = StopSignalOptions::ClosedPipe::kEndProcess});
  int threads = absl::GetFlag(FLAGS_threads);
  if (threads == 0) threads = NumCores();
  ThreadPool pool(threads);
  absl::Status status;
  {
    ProgressPrinter printer;
    RecordProgress progress;
    progress.report = [&](int64_t done, int64_t total) { printer.Show(done, total); };
    progress.stop = &stop;
    status = absl::GetFlag(FLAGS_check).empty() ? Write(progress, &pool) : Check(progress, &pool);
  }
  return FinishMain(status);
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) { return pushpull::Main(argc, argv); }

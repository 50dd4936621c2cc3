#include "worker/records/record_writer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "glog/logging.h"

#include "common/base/file_system.h"
#include "common/base/output_folder.h"
#include "common/base/passing_error.h"
#include "common/base/record_io.h"
#include "common/base/status_macros.h"
#include "worker/data/example_codec.h"

namespace pushpull {
namespace {

// Returns the end of the name of a shard, such as "-00000-of-00010".
std::string ShardSuffix(int shard, int num_shards) {
  return absl::StrFormat("-%05d-of-%05d", shard, num_shards);
}

// Returns whether `name` is `prefix` and the end of a shard's name, with any number of shards.
bool IsShardOf(absl::string_view prefix, absl::string_view name) {
  if (!absl::ConsumePrefix(&name, prefix)) return false;
  std::string zeros(name);
  for (char& c : zeros) {
    if (absl::ascii_isdigit(c)) c = '0';
  }
  return zeros == ShardSuffix(0, 0);
}

// Writes the shards under temporary names. The destructor removes files that were not published.
class Shards {
 public:
  Shards(FileSystem* files, const std::string& output, int num_shards) : files_(files) {
    const size_t name = output.rfind('/') + 1;  // 0 where there is no folder
    folder_ = FolderOf(output);
    prefix_ = FileNameOf(output);
    for (int i = 0; i < num_shards; ++i) {
      Shard shard;
      shard.path = absl::StrCat(output, ShardSuffix(i, num_shards));
      shard.temporary = absl::StrCat(output.substr(0, name), ".tmp-", shard.path.substr(name));
      shards_.push_back(std::move(shard));
    }
  }
  ~Shards() {
    for (const Shard& shard : shards_) {
      if (shard.created && !shard.published) files_->RemoveFile(shard.temporary).IgnoreError();
    }
  }
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;

  absl::Status Create() {
    PP_ASSIGN_OR_RETURN(output_folder_, OutputFolder::Make(files_, folder_));
    PP_RETURN_IF_ERROR(CheckOthers());
    for (Shard& shard : shards_) {
      PP_ASSIGN_OR_RETURN(shard.file,
                          files_->OpenForWrite(shard.temporary, FileSystem::WriteMode::kTruncate));
      shard.created = true;
    }
    return absl::OkStatus();
  }

  absl::Status Append(absl::string_view record) {
    framed_.clear();
    AppendRecord(record, &framed_);
    return shards_[num_records_++ % shards_.size()].file->Append(framed_);
  }

  absl::Status Publish(std::vector<std::string>* paths) {
    for (Shard& shard : shards_) {
      PP_RETURN_IF_ERROR(shard.file->Sync());
      PP_RETURN_IF_ERROR(shard.file->Close());
    }
    for (Shard& shard : shards_) {
      PP_RETURN_IF_ERROR(files_->Rename(shard.temporary, shard.path));
      shard.published = true;
      paths->push_back(shard.path);
    }
    return files_->SyncDirectory(folder_);
  }

 private:
  // Refuses to add a second data set of the same prefix, with another number of shards: the globs
  // that read one would read both.
  absl::Status CheckOthers() const {
    PP_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_->List(folder_));
    const std::string count = absl::StrFormat("-of-%05d", shards_.size());
    for (const std::string& name : names) {
      if (!IsShardOf(prefix_, name) || absl::EndsWith(name, count)) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(JoinPath(folder_, name), " is of a data set with another number of shards, ",
                       "and a glob such as ", prefix_, "-* would read the images of both: ",
                       "remove the files of that set, or give another --output"));
    }
    return absl::OkStatus();
  }

  struct Shard {
    std::string path;
    std::string temporary;
    std::unique_ptr<WritableFile> file;
    bool created = false;
    bool published = false;
  };

  FileSystem* const files_;
  std::string folder_;
  std::unique_ptr<OutputFolder> output_folder_;
  std::string prefix_;  // of the shards' names in the folder
  std::vector<Shard> shards_;
  int64_t num_records_ = 0;
  std::string framed_;
};

// The result of one image.
struct Made {
  absl::StatusOr<std::string> record;
  int64_t num_boxes = 0;
  BoxIssues issues;
  std::string damage;
};

Made MakeRecord(const AnnotatedSet& set, int64_t index) {
  Made made;
  absl::StatusOr<LoadedImage> image = set.Load(index);
  if (!image.ok()) {
    made.record = image.status();
    return made;
  }
  made.num_boxes = static_cast<int64_t>(image->annotation.objects.size());
  made.issues = std::move(image->issues);
  made.damage = std::move(image->damage);
  made.record = EncodeExample(image->annotation, image->encoded);
  return made;
}

}  // namespace

void RecordSummary::AddBoxes(BoxIssues issues) {
  num_bad_boxes += static_cast<int64_t>(issues.left_out.size());
  for (std::string& line : issues.left_out) problems.push_back(std::move(line));
  for (std::string& line : issues.clipped) clipped.push_back(std::move(line));
}

void RecordSummary::AddGoodImage(int64_t boxes, std::string damage) {
  ++num_images;
  num_boxes += boxes;
  if (!damage.empty()) damaged.push_back(std::move(damage));
}

absl::StatusOr<RecordSummary> WriteRecords(FileSystem* files, const AnnotatedSet& set,
                                           const RecordWriterOptions& options, ThreadPool* pool) {
  CHECK_GE(options.num_shards, 1);
  CHECK_LE(options.num_shards, kMaxRecordShards);
  Shards shards(files, options.output, options.num_shards);
  PP_RETURN_IF_ERROR(shards.Create());
  RecordSummary summary;
  std::vector<Made> group;
  for (int64_t begin = 0; begin < set.size(); begin += kImagesPerGroup) {
    if (options.progress.stop != nullptr && *options.progress.stop) {
      return absl::CancelledError(
          absl::StrCat("stopped after ", begin, " of ", set.size(), " images; nothing is written"));
    }
    const int64_t count = std::min(kImagesPerGroup, set.size() - begin);
    group.clear();
    group.resize(count);
    pool->ParallelFor(count, [&](int64_t i) { group[i] = MakeRecord(set, begin + i); });
    for (Made& made : group) {
      if (IsPassing(made.record.status())) return made.record.status();
      summary.AddBoxes(std::move(made.issues));
      if (!made.record.ok()) {
        ++summary.num_bad_images;
        summary.problems.emplace_back(made.record.status().message());
        continue;
      }
      summary.AddGoodImage(made.num_boxes, std::move(made.damage));
      // Nothing will be published, so the rest is only checked.
      if (options.bad_data == BadData::kRefuse && !summary.problems.empty()) continue;
      PP_RETURN_IF_ERROR(shards.Append(*made.record));
    }
    if (options.progress.report) options.progress.report(begin + count, set.size());
  }
  const bool refused = options.bad_data == BadData::kRefuse && !summary.problems.empty();
  if (refused || summary.num_images == 0) return summary;
  PP_RETURN_IF_ERROR(shards.Publish(&summary.files));
  return summary;
}

}  // namespace pushpull

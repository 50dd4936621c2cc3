#include "worker/data/image_cache.h"

#include <algorithm>
#include <atomic>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "glog/logging.h"

#include "common/base/passing_error.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "worker/data/check_examples.h"
#include "worker/data/image_progress.h"
#include "worker/data/preprocessor.h"

namespace pushpull {
namespace {

constexpr absl::string_view kNameBegin = "images-", kNameEnd = ".cache";
constexpr int64_t kComparedExamples = 16;
constexpr int64_t kMeasuredExamples = 64;
constexpr absl::Duration kReportPeriod = absl::Seconds(10);
constexpr absl::Duration kLockPeriod = absl::Milliseconds(500);

std::string FormatSize(int64_t bytes) {
  const double size = static_cast<double>(bytes);
  return size < 1e9 ? absl::StrFormat("%.1f MB", size * 1e-6)
                    : absl::StrFormat("%.1f GB", size * 1e-9);
}

ImageCacheIdentity IdentityOf(const ImageSource& source, const ImageCacheOptions& options) {
  ImageCacheIdentity identity;
  identity.num_examples = source.size();
  identity.num_classes = source.num_classes();
  identity.max_side = options.max_side;
  identity.key = Sha256Hex(absl::StrCat(source.identity(), "\n", source.size(), "\n",
                                        source.num_classes(), "\n", options.max_side, "\n",
                                        absl::StrJoin(source.class_names(), "\n")))
                     .substr(0, kImageCacheKeyBytes);
  return identity;
}

// Returns `count` indices, at most `size`, spread over [0, size). The first and the last index are
// among them.
std::vector<int64_t> SpreadIndices(int64_t size, int64_t count) {
  std::vector<int64_t> indices;
  count = std::min(count, size);
  for (int64_t i = 0; i < count; ++i) {
    indices.push_back(count == 1 ? 0 : i * (size - 1) / (count - 1));
  }
  return indices;
}

void LimitSide(int max_side, Image* image) {
  if (max_side == 0 || std::max(image->height, image->width) <= max_side) return;
  const ImageSize size = ScaledSize({max_side, max_side, {}}, {image->height, image->width});
  Image scaled;
  scaled.height = size.height;
  scaled.width = size.width;
  scaled.channels = image->channels;
  scaled.pixels.resize(size_t{1} * size.height * size.width * image->channels);
  scaled.damage = std::move(image->damage);
  Preprocessor preprocessor(InputShape{size.height, size.width, image->channels});
  preprocessor.RunToBytes(ViewPixels(*image), Shift{}, scaled.pixels.data());
  *image = std::move(scaled);
}

// Decodes example `index` and scales its image to the size that the cache stores.
absl::Status Decode(const ImageSource& source, const ImageCacheOptions& options, int64_t index,
                    Example* example) {
  PP_RETURN_IF_ERROR(source.Get(index, example));
  LimitSide(options.max_side, &example->image);
  return absl::OkStatus();
}

// Compares what the cache stores. Areas are not among it, because only evaluations use them.
bool SameBox(const Box& a, const Box& b) {
  const auto fields = [](const Box& box) {
    return std::tie(box.ymin, box.xmin, box.ymax, box.xmax, box.label, box.weight, box.difficult,
                    box.is_crowd, box.is_group_of);
  };
  return fields(a) == fields(b);
}

// Returns an empty string if the examples are equal, and a difference otherwise.
std::string Difference(const Example& stored, const Example& decoded) {
  const Image& a = stored.image;
  const Image& b = decoded.image;
  if (std::tie(a.height, a.width, a.channels) != std::tie(b.height, b.width, b.channels)) {
    return absl::StrCat("is ", a.height, " x ", a.width, " x ", a.channels, " there and now ",
                        b.height, " x ", b.width, " x ", b.channels);
  }
  if (a.pixels != b.pixels) return "has other pixels now";
  if (stored.label != decoded.label) {
    return absl::StrCat("has label ", stored.label, " there and now ", decoded.label);
  }
  if (!std::equal(stored.boxes.begin(), stored.boxes.end(), decoded.boxes.begin(),
                  decoded.boxes.end(), SameBox)) {
    return absl::StrCat("has other boxes now (", stored.boxes.size(), " there, ",
                        decoded.boxes.size(), " now)");
  }
  return "";
}

// A cache that is missing, damaged, unreadable or of other data, which building it again cures, or
// a cache that can be used.
using Fitting = absl::StatusOr<std::unique_ptr<ImageCacheReader>>;

// Opens the cache and compares some of its examples with the source. The outer status is an error
// of the source, which another cache would not cure.
absl::StatusOr<Fitting> OpenFitting(FileSystem& files, const ImageSource& source,
                                    const ImageCacheOptions& options) {
  Fitting cache =
      ImageCacheReader::Open(files, ImageCachePath(source, options), IdentityOf(source, options));
  if (!cache.ok()) return cache;
  Example stored;
  Example decoded;
  for (const int64_t index : SpreadIndices(source.size(), kComparedExamples)) {
    if (const absl::Status got = (*cache)->Get(index, &stored); !got.ok()) return Fitting(got);
    PP_RETURN_IF_ERROR(Decode(source, options, index, &decoded));
    const std::string difference = Difference(stored, decoded);
    if (difference.empty()) continue;
    return Fitting(absl::FailedPreconditionError(
        absl::StrCat("image cache ", (*cache)->path(), ": image ", index, " of ", source.describe(),
                     " ", difference, ": the data have changed")));
  }
  return cache;
}

// Reads every image, or returns early if `stopped`. The error is that of the bad image with the
// lowest index, in whatever order the threads find them.
absl::Status CheckPixels(const ImageCacheReader& cache, ThreadPool* pool, StoppedFn stopped) {
  std::vector<Example> scratch(pool->num_threads());
  absl::Mutex mutex;
  int64_t first_bad = cache.size();
  int64_t num_bad = 0;
  absl::Status status;
  pool->ParallelFor(cache.size(), [&](int64_t i, int thread) {
    if (stopped()) return;
    const absl::Status got = cache.Get(i, &scratch[thread]);
    if (got.ok()) return;
    absl::MutexLock lock(&mutex);
    ++num_bad;
    if (i > first_bad) return;
    first_bad = i;
    status = got;
  });
  if (num_bad <= 1) return status;
  return Annotated(status, absl::StrCat(status.message(), " (and ", num_bad - 1, " more of ",
                                        cache.size(), " images)"));
}

// Adds to an error of the cache what to do, and marks it as one that may pass, so that the worker's
// exit code says the same: PrepareImageCache cures it.
absl::Status WithAdvice(const absl::Status& status) {
  if (status.ok()) return status;
  return MarkPassing(Annotated(
      status, absl::StrCat(status.message(),
                           "; start the worker again, which checks the cache and builds it anew")));
}

// Does the work of one PrepareImageCache call.
class Preparation {
 public:
  Preparation(FileSystem& files, const ImageSource& source, const ImageCacheOptions& options,
              ThreadPool* pool, Clock* clock, const ImageCacheHooks& hooks)
      : files_(files),
        source_(source),
        options_(options),
        pool_(pool),
        clock_(clock),
        hooks_(hooks),
        path_(ImageCachePath(source, options)) {}

  absl::Status Run();

 private:
  bool Stopped() const { return hooks_.stopped && hooks_.stopped(); }
  absl::Status Examine();
  absl::StatusOr<std::unique_ptr<FileLock>> Lock();
  int64_t EstimateBytes() const;
  absl::Status Remove(const std::string& path);
  absl::Status Build();
  absl::Status Write(const std::string& temporary, int64_t expected_bytes);
  void Report(int64_t done, int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status NoRoom(int64_t needed, absl::string_view why) const;
  std::string OtherCaches() const;

  FileSystem& files_;
  const ImageSource& source_;
  const ImageCacheOptions& options_;
  ThreadPool* const pool_;
  Clock* const clock_;
  const ImageCacheHooks& hooks_;
  const std::string path_;
  absl::Mutex mutex_;
  absl::Duration last_report_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
};

// Returns OK if there is a complete and undamaged cache of these data.
absl::Status Preparation::Examine() {
  PP_ASSIGN_OR_RETURN(Fitting fitting, OpenFitting(files_, source_, options_));
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<ImageCacheReader> cache, std::move(fitting));
  ImageProgress progress("the check of the image cache", cache->size(), clock_, hooks_.on_wait);
  PP_RETURN_IF_ERROR(CheckPixels(*cache, pool_, [&] {
    progress.Count();
    return Stopped();
  }));
  LOG(INFO) << "image cache " << path_ << ": " << cache->size() << " images, "
            << FormatSize(cache->size_bytes());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileLock>> Preparation::Lock() {
  while (true) {
    absl::StatusOr<std::unique_ptr<FileLock>> lock = files_.Lock(absl::StrCat(path_, ".lock"));
    if (!absl::IsUnavailable(lock.status())) return lock;
    if (Stopped()) return absl::CancelledError("stopped while waiting for the image cache");
    if (hooks_.on_wait) {
      hooks_.on_wait(absl::StrCat("another process, which builds the image cache ", path_));
    }
    clock_->Sleep(kLockPeriod);
  }
}

// Extrapolates from some decoded examples, since the size of an image is known only after decoding.
// Ignores examples that cannot be read; Write will report them.
int64_t Preparation::EstimateBytes() const {
  Example example;
  int64_t bytes = 0;
  int64_t measured = 0;
  for (const int64_t index : SpreadIndices(source_.size(), kMeasuredExamples)) {
    if (!Decode(source_, options_, index, &example).ok()) continue;
    ++measured;
    bytes += static_cast<int64_t>(example.image.pixels.size() + sizeof(ImageCacheEntry) +
                                  example.boxes.size() * sizeof(ImageCacheBox));
  }
  if (measured == 0) return 0;
  return static_cast<int64_t>(static_cast<double>(bytes) / static_cast<double>(measured) *
                              static_cast<double>(source_.size()));
}

// Names the other caches in the folder for the message that there is no room. Empty if there are
// none.
std::string Preparation::OtherCaches() const {
  const absl::StatusOr<std::vector<std::string>> names = files_.List(options_.folder);
  if (!names.ok()) return "";
  std::vector<std::string> others;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(options_.folder, name);
    if (path == path_ || !absl::StartsWith(name, kNameBegin) || !absl::EndsWith(name, kNameEnd)) {
      continue;
    }
    const absl::StatusOr<FileInfo> info = files_.GetInfo(path);
    if (info.ok()) others.push_back(absl::StrCat(name, " (", FormatSize(info->size_bytes), ")"));
  }
  if (others.empty()) return "";
  return absl::StrCat(
      "; the caches of other or earlier data there can be removed if no worker uses "
      "them: ",
      absl::StrJoin(others, ", "));
}

absl::Status Preparation::NoRoom(int64_t needed, absl::string_view why) const {
  const absl::StatusOr<int64_t> free = files_.FreeBytes(options_.folder);
  return absl::ResourceExhaustedError(absl::StrCat(
      "image cache ", path_, ": about ", FormatSize(needed), " are needed for ", source_.size(),
      " images, ", free.ok() ? FormatSize(*free) : "an unknown size", " are free in ",
      options_.folder, why.empty() ? "" : absl::StrCat(" (", why, ")"), OtherCaches(),
      "; make room, name a folder on another disk (--image_cache_dir), store smaller images "
      "(--image_cache_max_side) or train without a cache"));
}

void Preparation::Report(int64_t done, int64_t bytes) {
  if (!hooks_.on_wait) return;
  absl::MutexLock lock(&mutex_);
  const absl::Duration now = clock_->Now();
  if (now - last_report_ < kReportPeriod) return;
  last_report_ = now;
  hooks_.on_wait(absl::StrCat("the image cache: ", done, " of ", source_.size(), " images, ",
                              FormatSize(bytes)));
}

absl::Status Preparation::Write(const std::string& temporary, int64_t expected_bytes) {
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<ImageCacheWriter> writer,
                      ImageCacheWriter::Create(files_, temporary, IdentityOf(source_, options_)));
  std::atomic<int64_t> done{0};
  std::atomic<bool> failed{false};
  absl::Mutex mutex;
  absl::Status write_status;  // guarded by mutex
  const absl::Status read_status = CheckExamples(
      source_, source_.describe(), pool_, [this] { return Stopped(); },
      [&](int64_t i, Example* example) -> absl::Status {
        if (failed.load(std::memory_order_relaxed)) return absl::OkStatus();
        PP_RETURN_IF_ERROR(Decode(source_, options_, i, example));
        if (const absl::Status added = writer->Add(i, *example); !added.ok()) {
          absl::MutexLock lock(&mutex);
          write_status.Update(added);
          failed.store(true);
        }
        Report(done.fetch_add(1) + 1, writer->bytes_written());
        return absl::OkStatus();
      });
  if (Stopped()) return absl::CancelledError("stopped while the image cache was built");
  // After an error of the file, the other images were left out.
  if (!failed.load()) PP_RETURN_IF_ERROR(read_status);
  if (write_status.ok()) write_status = writer->Finish();
  if (absl::IsResourceExhausted(write_status)) {
    return NoRoom(std::max(expected_bytes, writer->bytes_written()), write_status.message());
  }
  return write_status;
}

absl::Status Preparation::Remove(const std::string& path) {
  const absl::Status removed = files_.RemoveFile(path);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

absl::Status Preparation::Build() {
  const std::string temporary = absl::StrCat(path_, ".building");
  // This process holds the lock, so a temporary file was left by a process that died.
  PP_RETURN_IF_ERROR(Remove(temporary));
  const int64_t expected = EstimateBytes();
  PP_ASSIGN_OR_RETURN(int64_t free, files_.FreeBytes(options_.folder));
  if (free < expected) {
    PP_RETURN_IF_ERROR(Remove(path_));  // Run found the old cache unusable
    PP_ASSIGN_OR_RETURN(free, files_.FreeBytes(options_.folder));
  }
  if (free < expected) return NoRoom(expected, "");
  LOG(INFO) << "building the image cache " << path_ << ": " << source_.size() << " images, about "
            << FormatSize(expected);
  const absl::Duration start = clock_->Now();
  {
    absl::MutexLock lock(&mutex_);
    last_report_ = start;
  }
  absl::Status status = Write(temporary, expected);
  status.Update(status.ok() ? files_.Rename(temporary, path_) : absl::OkStatus());
  if (!status.ok()) {
    files_.RemoveFile(temporary).IgnoreError();
    return status;
  }
  PP_RETURN_IF_ERROR(files_.SyncDirectory(options_.folder));
  PP_ASSIGN_OR_RETURN(Fitting fitting, OpenFitting(files_, source_, options_));
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<ImageCacheReader> cache, std::move(fitting));
  LOG(INFO) << "image cache " << path_ << ": " << cache->size() << " images, "
            << FormatSize(cache->size_bytes()) << ", built in "
            << absl::FormatDuration(absl::Trunc(clock_->Now() - start, absl::Milliseconds(1)));
  return absl::OkStatus();
}

absl::Status Preparation::Run() {
  PP_RETURN_IF_ERROR(MakeDirectories(files_, options_.folder));
  const auto stopped = [this] {
    return Stopped() ? absl::CancelledError("stopped while the image cache was checked")
                     : absl::OkStatus();
  };
  // A file gets its final name when it is complete and does not change afterwards, so reading it
  // needs no lock.
  absl::Status examined = Examine();
  PP_RETURN_IF_ERROR(stopped());
  if (examined.ok()) return absl::OkStatus();
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<FileLock> lock, Lock());
  examined = Examine();  // another process may have built it in the meantime
  PP_RETURN_IF_ERROR(stopped());
  if (examined.ok()) return absl::OkStatus();
  // A complete cache is built again only if the cache is at fault. If an image that it is compared
  // with cannot be read now, the cache stays.
  if (files_.GetInfo(path_).ok()) {
    Example example;
    for (const int64_t index : SpreadIndices(source_.size(), kComparedExamples)) {
      PP_RETURN_IF_ERROR(Decode(source_, options_, index, &example));
    }
  }
  if (!absl::IsNotFound(examined)) {
    LOG(WARNING) << "the image cache is built again: " << examined.message();
  }
  return Build();
}

}  // namespace

std::string ImageCachePath(const ImageSource& source, const ImageCacheOptions& options) {
  return JoinPath(options.folder,
                  absl::StrCat(kNameBegin, IdentityOf(source, options).key, kNameEnd));
}

absl::Status PrepareImageCache(FileSystem& files, const ImageSource& source,
                               const ImageCacheOptions& options, ThreadPool* pool, Clock* clock,
                               const ImageCacheHooks& hooks) {
  return Preparation(files, source, options, pool, clock, hooks).Run();
}

std::string CachedImageSource::describe() const {
  return absl::StrCat("image cache ", cache_->path(), " (", FormatSize(cache_->size_bytes()),
                      ") of ", source_->describe());
}

absl::Status CachedImageSource::Get(int64_t index, Example* example) const {
  return WithAdvice(cache_->Get(index, example));
}

absl::Status CachedImageSource::Check(ThreadPool* pool, StoppedFn stopped) const {
  const absl::Status checked = CheckPixels(*cache_, pool, stopped);
  if (stopped()) return absl::CancelledError("stopped while the image cache was checked");
  return WithAdvice(checked);
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenImageCache(FileSystem& files,
                                                            std::unique_ptr<ImageSource> source,
                                                            const ImageCacheOptions& options) {
  PP_ASSIGN_OR_RETURN(Fitting cache, OpenFitting(files, *source, options));
  if (!cache.ok()) return WithAdvice(cache.status());
  return std::make_unique<CachedImageSource>(std::move(source), *std::move(cache));
}

}  // namespace pushpull

#include "worker/data/idx_source.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"

#include "common/base/crc32c.h"
#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "worker/data/image_codec.h"
#include "worker/data/image_sources.h"
#include "worker/data/maybe_gzip_file.h"

namespace pushpull {
namespace {

constexpr uint32_t kMagicUint8 = 0x0800;  // the low byte is the number of dimensions
// The data are read in pieces of this size, and `stopped` is asked before each. A piece takes
// milliseconds, also where it is inflated.
constexpr int64_t kPieceBytes = 1 << 20;
// Limit for the data of one file, which is held in memory. Without it, a gzip file a thousand times
// smaller could fill the memory.
constexpr int64_t kMaxBytes = int64_t{4} << 30;

// A file whose header has been read and checked. Its data have not been read yet.
struct IdxFile {
  std::unique_ptr<MaybeGzipFile> file;
  std::vector<int64_t> dims;
  int64_t data_bytes = 0;  // size of the data according to the header, at most kMaxBytes

  std::string DimsText() const { return absl::StrJoin(dims, " x "); }
};

// Reads a big-endian uint32. `offset` and `what` are used in the message.
absl::StatusOr<uint32_t> ReadUint32(MaybeGzipFile* file, int64_t offset, absl::string_view what) {
  uint8_t bytes[4];
  PP_ASSIGN_OR_RETURN(const size_t got, file->Read(bytes, sizeof(bytes)));
  if (got < sizeof(bytes)) {
    return absl::DataLossError(absl::StrCat(file->path(),
                                            ": truncated in the IDX header: 4 bytes of ", what,
                                            " expected at byte ", offset, ", got ", got));
  }
  return (uint32_t{bytes[0]} << 24) | (uint32_t{bytes[1]} << 16) | (uint32_t{bytes[2]} << 8) |
         bytes[3];
}

absl::Status WrongMagic(const std::string& path, uint32_t magic, bool images) {
  const bool swapped =
      images ? magic == kMagicUint8 + 1 : magic == kMagicUint8 + 3 || magic == kMagicUint8 + 4;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: wrong magic number 0x%08x, expected %s%s", path, magic,
                      images ? "0x00000803 (IDX images: unsigned bytes, 3 dimensions) or 0x00000804"
                             : "0x00000801 (IDX labels: unsigned bytes, 1 dimension)",
                      swapped ? (images ? "; this is a file of labels: are the two paths swapped?"
                                        : "; this is a file of images: are the two paths swapped?")
                              : ""));
}

absl::StatusOr<IdxFile> OpenIdx(const std::string& path, bool images) {
  IdxFile idx;
  PP_ASSIGN_OR_RETURN(idx.file, MaybeGzipFile::Open(path));
  PP_ASSIGN_OR_RETURN(const uint32_t magic, ReadUint32(idx.file.get(), 0, "magic number"));
  const bool expected =
      images ? magic == kMagicUint8 + 3 || magic == kMagicUint8 + 4 : magic == kMagicUint8 + 1;
  if (!expected) return WrongMagic(path, magic, images);
  const int num_dims = static_cast<int>(magic & 0xff);
  __int128 total = 1;  // limited to kMaxBytes + 1, since the whole product could overflow
  for (int i = 0; i < num_dims; ++i) {
    PP_ASSIGN_OR_RETURN(const uint32_t dim, ReadUint32(idx.file.get(), 4 + 4 * i, "dimension"));
    idx.dims.push_back(dim);
    total = std::min<__int128>(total * dim, kMaxBytes + 1);
  }
  if (idx.dims[0] == 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the IDX file holds no examples"));
  }
  if (images) {
    const int64_t channels = num_dims == 4 ? idx.dims[3] : 1;
    if (idx.dims[1] < 1 || idx.dims[2] < 1 || idx.dims[1] > kMaxImageSide ||
        idx.dims[2] > kMaxImageSide || (channels != 1 && channels != 3)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": IDX dimensions ", idx.DimsText(),
          "; expected examples x height x width [x 1 or 3], sides 1 to ", kMaxImageSide));
    }
  }
  if (total > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the IDX header announces ",
                                                   idx.DimsText(), " bytes of data; at most ",
                                                   kMaxBytes, " are read into memory"));
  }
  idx.data_bytes = static_cast<int64_t>(total);
  return idx;
}

// Reads the data into a buffer that grows as it is filled, so that a false header cannot make it
// much larger than the file's content.
absl::StatusOr<std::vector<uint8_t>> ReadData(const IdxFile& idx, StoppedFn stopped) {
  std::vector<uint8_t> data;
  int64_t done = 0;
  while (done < idx.data_bytes) {
    if (stopped()) {
      return absl::CancelledError(absl::StrCat("stopped while opening ", idx.file->path()));
    }
    const int64_t end = std::min(idx.data_bytes, done + kPieceBytes);
    if (end > static_cast<int64_t>(data.capacity())) {
      data.reserve(std::min(idx.data_bytes, std::max(end, 2 * done)));
    }
    data.resize(end);
    const size_t room = end - done;
    PP_ASSIGN_OR_RETURN(const size_t got, idx.file->Read(data.data() + done, room));
    done += static_cast<int64_t>(got);
    if (got < room) {
      return absl::DataLossError(
          absl::StrCat(idx.file->path(), ": truncated: the IDX header announces ", idx.DimsText(),
                       " = ", idx.data_bytes, " bytes of data, got ", done));
    }
  }
  // Reading past the data also verifies the gzip checksum. One piece shows whether more follows.
  std::vector<uint8_t> rest(kPieceBytes);
  PP_ASSIGN_OR_RETURN(const size_t trailing, idx.file->Read(rest.data(), rest.size()));
  if (trailing == 0) return data;
  return absl::InvalidArgumentError(
      absl::StrCat(idx.file->path(), ": ", trailing == rest.size() ? "at least " : "", trailing,
                   " bytes left over after the ", idx.data_bytes,
                   " bytes of data that the IDX header announces (", idx.DimsText(), ")"));
}

// Returns OK if both are OK, the error if there is one, and a combined error if there are two.
template <typename T>
absl::Status Both(const absl::StatusOr<T>& images, const absl::StatusOr<T>& labels) {
  if (!images.ok() && !labels.ok()) {
    return Annotated(images.status(),
                     absl::StrCat(images.status().message(), "\n", labels.status().message()));
  }
  return images.ok() ? labels.status() : images.status();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ImageSource>> IdxSource::Open(const std::string& images_path,
                                                             const std::string& labels_path,
                                                             int num_classes, StoppedFn stopped) {
  const absl::StatusOr<IdxFile> images = OpenIdx(images_path, /*images=*/true);
  const absl::StatusOr<IdxFile> labels = OpenIdx(labels_path, /*images=*/false);
  PP_RETURN_IF_ERROR(Both(images, labels));
  // Checked before any data are read: equal counts also limit the size of the label data.
  if (images->dims[0] != labels->dims[0]) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the numbers of images and labels differ: ", images_path, " has ", images->dims[0],
        " images, ", labels_path, " has ", labels->dims[0], " labels"));
  }
  absl::StatusOr<std::vector<uint8_t>> pixels = ReadData(*images, stopped);
  if (absl::IsCancelled(pixels.status())) return pixels.status();
  absl::StatusOr<std::vector<uint8_t>> classes = ReadData(*labels, stopped);
  PP_RETURN_IF_ERROR(Both(pixels, classes));
  for (int64_t i = 0; i < labels->dims[0]; ++i) {
    if ((*classes)[i] >= num_classes) {
      return absl::InvalidArgumentError(absl::StrCat(
          labels_path, ": label ", i, " is ", (*classes)[i], ", out of range: the model has ",
          num_classes, " classes (0 to ", num_classes - 1, ")"));
    }
  }
  auto source = std::unique_ptr<IdxSource>(new IdxSource());
  source->images_path_ = images_path;
  source->labels_path_ = labels_path;
  source->num_classes_ = num_classes;
  source->height_ = static_cast<int>(images->dims[1]);
  source->width_ = static_cast<int>(images->dims[2]);
  source->channels_ = images->dims.size() == 4 ? static_cast<int>(images->dims[3]) : 1;
  source->pixels_ = *std::move(pixels);
  source->labels_ = *std::move(classes);
  return source;
}

std::vector<std::string> IdxSource::class_names() const {
  std::vector<std::string> names;
  for (int label = 0; label < num_classes_; ++label) names.push_back(absl::StrCat(label));
  return names;
}

std::string IdxSource::describe() const {
  return absl::StrCat("IDX ", images_path_, ": ", size(), " images of ", height_, " x ", width_,
                      " x ", channels_, ", ", num_classes_, " classes");
}

std::string IdxSource::identity() const {
  return absl::StrCat(describe(), "\nlabels ", labels_path_, " ",
                      ExtendCrc32c(0, labels_.data(), labels_.size()));
}

absl::Status IdxSource::Get(int64_t index, Example* example) const {
  CHECK_GE(index, 0);
  CHECK_LT(index, size());
  const int64_t image_bytes = int64_t{1} * height_ * width_ * channels_;
  const uint8_t* const begin = pixels_.data() + index * image_bytes;
  example->image.height = height_;
  example->image.width = width_;
  example->image.channels = channels_;
  example->image.pixels.assign(begin, begin + image_bytes);
  example->label = labels_[index];
  example->boxes.clear();
  return absl::OkStatus();
}

absl::Status IdxSource::Check(ThreadPool*, StoppedFn) const { return absl::OkStatus(); }

SourceOrError OpenSource(const config::IdxInputReader& reader, const SourceOptions& options) {
  return IdxSource::Open(options.Path(reader.images_path()), options.Path(reader.labels_path()),
                         options.num_classes, options.stopped);
}

}  // namespace pushpull

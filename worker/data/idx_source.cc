#include "worker/data/idx_source.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"

#include "common/status_macros.h"
#include "worker/data/image_codec.h"
#include "worker/data/maybe_gzip_file.h"

namespace pushpull {
namespace {

constexpr uint32_t kMagicUint8 = 0x0800;  // the low byte is the number of dimensions
constexpr size_t kFirstReadBytes = 1 << 20;
constexpr int64_t kMaxBytes = int64_t{1} << 36;

struct IdxArray {
  std::vector<int64_t> dims;
  std::vector<uint8_t> data;
};

// Reads four bytes, big-endian; `what` is for the message.
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

// Reads `total` bytes in growing steps, so that a header that lies cannot claim memory.
absl::Status ReadData(MaybeGzipFile* file, int64_t total, absl::string_view dims,
                      std::vector<uint8_t>* data) {
  int64_t done = 0;
  while (done < total) {
    data->resize(std::min<int64_t>(total, std::max<int64_t>(kFirstReadBytes, 2 * done)));
    const size_t room = data->size() - done;
    PP_ASSIGN_OR_RETURN(const size_t got, file->Read(data->data() + done, room));
    done += static_cast<int64_t>(got);
    if (got < room) {
      return absl::DataLossError(absl::StrCat(file->path(),
                                              ": truncated: the IDX header announces ", dims, " = ",
                                              total, " bytes of data, got ", done));
    }
  }
  // Reading on to the end also verifies the gzip checksum.
  std::vector<uint8_t> rest(kFirstReadBytes);
  int64_t trailing = 0;
  for (;;) {
    PP_ASSIGN_OR_RETURN(const size_t got, file->Read(rest.data(), rest.size()));
    trailing += static_cast<int64_t>(got);
    if (got < rest.size()) break;
  }
  if (trailing == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file->path(), ": ", trailing, " bytes left over after the ", total,
                   " bytes of data that the IDX header announces (", dims, ")"));
}

absl::StatusOr<IdxArray> ReadIdx(const std::string& path, bool images) {
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<MaybeGzipFile> file, MaybeGzipFile::Open(path));
  PP_ASSIGN_OR_RETURN(const uint32_t magic, ReadUint32(file.get(), 0, "magic number"));
  const bool expected =
      images ? magic == kMagicUint8 + 3 || magic == kMagicUint8 + 4 : magic == kMagicUint8 + 1;
  if (!expected) return WrongMagic(path, magic, images);
  IdxArray array;
  const int num_dims = static_cast<int>(magic & 0xff);
  __int128 total = 1;  // no more than kMaxBytes + 1: the product of all may not fit
  for (int i = 0; i < num_dims; ++i) {
    PP_ASSIGN_OR_RETURN(const uint32_t dim, ReadUint32(file.get(), 4 + 4 * i, "dimension"));
    array.dims.push_back(dim);
    total = std::min<__int128>(total * dim, kMaxBytes + 1);
  }
  const std::string dims = absl::StrJoin(array.dims, " x ");
  if (array.dims[0] == 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the IDX file holds no examples"));
  }
  if (images) {
    const int64_t channels = num_dims == 4 ? array.dims[3] : 1;
    if (array.dims[1] < 1 || array.dims[2] < 1 || array.dims[1] > kMaxImageSide ||
        array.dims[2] > kMaxImageSide || (channels != 1 && channels != 3)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": IDX dimensions ", dims,
          "; expected examples x height x width [x 1 or 3], sides 1 to ", kMaxImageSide));
    }
  }
  if (total > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the IDX header announces ", dims,
                                                   " bytes; at most ", kMaxBytes,
                                                   " are kept in memory"));
  }
  PP_RETURN_IF_ERROR(ReadData(file.get(), static_cast<int64_t>(total), dims, &array.data));
  return array;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ImageSource>> IdxSource::Open(const std::string& images_path,
                                                             const std::string& labels_path,
                                                             int num_classes) {
  absl::StatusOr<IdxArray> images = ReadIdx(images_path, /*images=*/true);
  absl::StatusOr<IdxArray> labels = ReadIdx(labels_path, /*images=*/false);
  if (!images.ok() && !labels.ok()) {
    return absl::Status(images.status().code(),
                        absl::StrCat(images.status().message(), "\n", labels.status().message()));
  }
  if (!images.ok()) return images.status();
  if (!labels.ok()) return labels.status();
  if (images->dims[0] != labels->dims[0]) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the numbers of images and labels differ: ", images_path, " has ", images->dims[0],
        " images, ", labels_path, " has ", labels->dims[0], " labels"));
  }
  for (int64_t i = 0; i < labels->dims[0]; ++i) {
    if (labels->data[i] >= num_classes) {
      return absl::InvalidArgumentError(absl::StrCat(
          labels_path, ": label ", i, " is ", labels->data[i], ", out of range: the model has ",
          num_classes, " classes (0 to ", num_classes - 1, ")"));
    }
  }
  auto source = std::unique_ptr<IdxSource>(new IdxSource());
  source->images_path_ = images_path;
  source->num_classes_ = num_classes;
  source->height_ = static_cast<int>(images->dims[1]);
  source->width_ = static_cast<int>(images->dims[2]);
  source->channels_ = images->dims.size() == 4 ? static_cast<int>(images->dims[3]) : 1;
  source->pixels_ = std::move(images->data);
  source->labels_ = std::move(labels->data);
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

absl::Status IdxSource::Check(ThreadPool*) const { return absl::OkStatus(); }

}  // namespace pushpull

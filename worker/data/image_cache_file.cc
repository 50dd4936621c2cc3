#include "worker/data/image_cache_file.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"

#include "common/base/crc32c.h"
#include "common/base/passing_error.h"
#include "common/base/status_macros.h"

namespace pushpull {
namespace {

int64_t NumPixelBytes(const ImageCacheEntry& entry) {
  return int64_t{entry.height} * entry.width * entry.channels;
}

uint32_t FooterCrc(const ImageCacheHeader& header, const ImageCacheFooter& footer) {
  return ExtendCrc32c(Crc32c(&header, sizeof(header)), &footer,
                      offsetof(ImageCacheFooter, footer_crc));
}

template <typename T>
uint32_t ExtendCrcOf(uint32_t crc, const std::vector<T>& items) {
  return ExtendCrc32c(crc, items.data(), items.size() * sizeof(T));
}

ImageCacheHeader MakeHeader() {
  ImageCacheHeader header = {};
  std::memcpy(header.magic, kImageCacheMagic, sizeof(header.magic));
  header.version = kImageCacheVersion;
  return header;
}

ImageCacheBox StoredBox(const Box& box) {
  ImageCacheBox stored = {};
  stored.ymin = box.ymin;
  stored.xmin = box.xmin;
  stored.ymax = box.ymax;
  stored.xmax = box.xmax;
  stored.weight = box.weight;
  stored.label = static_cast<uint32_t>(box.label);
  stored.flags = (box.difficult ? kImageCacheBoxDifficult : 0) |
                 (box.is_crowd ? kImageCacheBoxIsCrowd : 0) |
                 (box.is_group_of ? kImageCacheBoxIsGroupOf : 0);
  return stored;
}

Box LoadedBox(const ImageCacheBox& stored) {
  Box box;
  box.ymin = stored.ymin;
  box.xmin = stored.xmin;
  box.ymax = stored.ymax;
  box.xmax = stored.xmax;
  box.weight = stored.weight;
  box.label = static_cast<int32_t>(stored.label);
  box.difficult = (stored.flags & kImageCacheBoxDifficult) != 0;
  box.is_crowd = (stored.flags & kImageCacheBoxIsCrowd) != 0;
  box.is_group_of = (stored.flags & kImageCacheBoxIsGroupOf) != 0;
  return box;
}

absl::Status Damaged(absl::string_view path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("image cache ", path, ": ", what));
}

}  // namespace

ImageCacheWriter::ImageCacheWriter(std::unique_ptr<WritableFile> file,
                                   const ImageCacheIdentity& identity)
    : identity_(identity), file_(std::move(file)) {
  table_.resize(identity.num_examples);
}

absl::StatusOr<std::unique_ptr<ImageCacheWriter>> ImageCacheWriter::Create(
    FileSystem& files, const std::string& path, const ImageCacheIdentity& identity) {
  CHECK_EQ(identity.key.size(), kImageCacheKeyBytes);
  PP_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                      files.OpenForWrite(path, FileSystem::WriteMode::kTruncate));
  std::unique_ptr<ImageCacheWriter> writer(new ImageCacheWriter(std::move(file), identity));
  absl::MutexLock lock(&writer->mutex_);
  const ImageCacheHeader header = MakeHeader();
  PP_RETURN_IF_ERROR(writer->Append(&header, sizeof(header)));
  return writer;
}

absl::Status ImageCacheWriter::Append(const void* data, size_t size_bytes) {
  if (!status_.ok()) return status_;
  status_ = file_->Append(absl::string_view(static_cast<const char*>(data), size_bytes));
  bytes_written_ += static_cast<int64_t>(size_bytes);
  return status_;
}

absl::Status ImageCacheWriter::Add(int64_t index, const Example& example) {
  const Image& image = example.image;
  ImageCacheEntry entry = {};
  entry.num_boxes = static_cast<uint32_t>(example.boxes.size());
  entry.height = static_cast<uint32_t>(image.height);
  entry.width = static_cast<uint32_t>(image.width);
  entry.channels = static_cast<uint32_t>(image.channels);
  entry.label = static_cast<uint32_t>(example.label);
  entry.pixels_crc = Crc32c(image.pixels.data(), image.pixels.size());
  CHECK_EQ(NumPixelBytes(entry), static_cast<int64_t>(image.pixels.size()));
  absl::MutexLock lock(&mutex_);
  entry.pixels_offset = static_cast<uint64_t>(bytes_written_);
  entry.first_box = boxes_.size();
  PP_RETURN_IF_ERROR(Append(image.pixels.data(), image.pixels.size()));
  for (const Box& box : example.boxes) boxes_.push_back(StoredBox(box));
  table_[index] = entry;
  ++num_added_;
  return absl::OkStatus();
}

absl::Status ImageCacheWriter::Finish() {
  absl::MutexLock lock(&mutex_);
  PP_RETURN_IF_ERROR(status_);
  CHECK_EQ(num_added_, identity_.num_examples);
  ImageCacheFooter footer = {};
  footer.num_examples = table_.size();
  footer.num_boxes = boxes_.size();
  footer.table_offset = static_cast<uint64_t>(bytes_written_);
  std::memcpy(footer.key, identity_.key.data(), sizeof(footer.key));
  footer.num_classes = static_cast<uint32_t>(identity_.num_classes);
  footer.max_side = static_cast<uint32_t>(identity_.max_side);
  footer.version = kImageCacheVersion;
  footer.table_crc = ExtendCrcOf(ExtendCrcOf(0, table_), boxes_);
  std::memcpy(footer.magic, kImageCacheMagic, sizeof(footer.magic));
  footer.footer_crc = FooterCrc(MakeHeader(), footer);
  PP_RETURN_IF_ERROR(Append(table_.data(), table_.size() * sizeof(ImageCacheEntry)));
  PP_RETURN_IF_ERROR(Append(boxes_.data(), boxes_.size() * sizeof(ImageCacheBox)));
  PP_RETURN_IF_ERROR(Append(&footer, sizeof(footer)));
  PP_RETURN_IF_ERROR(file_->Sync());
  return file_->Close();
}

int64_t ImageCacheWriter::bytes_written() const {
  absl::MutexLock lock(&mutex_);
  return bytes_written_;
}

absl::StatusOr<std::unique_ptr<ImageCacheReader>> ImageCacheReader::Open(
    FileSystem& files, const std::string& path, const ImageCacheIdentity& identity) {
  PP_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, files.OpenForRead(path));
  std::unique_ptr<ImageCacheReader> reader(new ImageCacheReader(std::move(file), path));
  ImageCacheFooter footer;
  PP_RETURN_IF_ERROR(reader->ReadFooter(&footer));
  const absl::string_view key(footer.key, sizeof(footer.key));
  if (key != identity.key || footer.num_examples != static_cast<uint64_t>(identity.num_examples) ||
      footer.num_classes != static_cast<uint32_t>(identity.num_classes) ||
      footer.max_side != static_cast<uint32_t>(identity.max_side)) {
    return absl::FailedPreconditionError(
        absl::StrCat("image cache ", path, " was made of other data: ", footer.num_examples,
                     " images, ", footer.num_classes, " classes, longest side ", footer.max_side,
                     ", key ", key, "; expected ", identity.num_examples, ", ",
                     identity.num_classes, ", ", identity.max_side, ", ", identity.key));
  }
  PP_RETURN_IF_ERROR(reader->ReadTable(footer));
  PP_RETURN_IF_ERROR(reader->CheckEntries(footer));
  return reader;
}

absl::Status ImageCacheReader::ReadFooter(ImageCacheFooter* footer) const {
  const int64_t size = size_bytes();
  constexpr int64_t kSmallest = sizeof(ImageCacheHeader) + sizeof(ImageCacheFooter);
  if (size < kSmallest) {
    return Damaged(path_, absl::StrCat(size, " bytes, expected at least ", kSmallest));
  }
  ImageCacheHeader header;
  PP_RETURN_IF_ERROR(file_->ReadAt(0, &header, sizeof(header)));
  PP_RETURN_IF_ERROR(file_->ReadAt(size - int64_t{sizeof(*footer)}, footer, sizeof(*footer)));
  if (std::memcmp(header.magic, kImageCacheMagic, sizeof(header.magic)) != 0) {
    return Damaged(path_, "does not begin as an image cache");
  }
  if (std::memcmp(footer->magic, kImageCacheMagic, sizeof(footer->magic)) != 0) {
    return Damaged(path_, "its end is missing");
  }
  if (const uint32_t crc = FooterCrc(header, *footer); crc != footer->footer_crc) {
    return Damaged(path_, absl::StrFormat("checksum of header and footer is %08x, stored is %08x",
                                          crc, footer->footer_crc));
  }
  if (header.version != kImageCacheVersion || footer->version != kImageCacheVersion) {
    return absl::FailedPreconditionError(absl::StrCat("image cache ", path_, ": version ",
                                                      header.version, ", this program's is ",
                                                      kImageCacheVersion));
  }
  // The counts are compared with the file size first, so that the products cannot overflow.
  const uint64_t room = static_cast<uint64_t>(size);
  if (footer->num_examples > room / sizeof(ImageCacheEntry) ||
      footer->num_boxes > room / sizeof(ImageCacheBox) || footer->table_offset > room ||
      footer->table_offset + footer->num_examples * sizeof(ImageCacheEntry) +
              footer->num_boxes * sizeof(ImageCacheBox) + sizeof(*footer) !=
          room) {
    return Damaged(path_,
                   absl::StrCat(size, " bytes do not fit ", footer->num_examples, " examples and ",
                                footer->num_boxes, " boxes from byte ", footer->table_offset));
  }
  return absl::OkStatus();
}

absl::Status ImageCacheReader::ReadTable(const ImageCacheFooter& footer) {
  table_.resize(footer.num_examples);
  boxes_.resize(footer.num_boxes);
  const int64_t table_bytes = static_cast<int64_t>(table_.size() * sizeof(ImageCacheEntry));
  const int64_t box_bytes = static_cast<int64_t>(boxes_.size() * sizeof(ImageCacheBox));
  const int64_t offset = static_cast<int64_t>(footer.table_offset);
  PP_RETURN_IF_ERROR(file_->ReadAt(offset, table_.data(), table_bytes));
  PP_RETURN_IF_ERROR(file_->ReadAt(offset + table_bytes, boxes_.data(), box_bytes));
  const uint32_t crc = ExtendCrcOf(ExtendCrcOf(0, table_), boxes_);
  if (crc == footer.table_crc) return absl::OkStatus();
  return Damaged(path_, absl::StrFormat("checksum of the table at byte %d is %08x, stored is %08x",
                                        offset, crc, footer.table_crc));
}

absl::Status ImageCacheReader::CheckEntries(const ImageCacheFooter& footer) const {
  for (size_t i = 0; i < table_.size(); ++i) {
    const ImageCacheEntry& entry = table_[i];
    const bool has_size = entry.height >= 1 && entry.height <= kImageCacheMaxSide &&
                          entry.width >= 1 && entry.width <= kImageCacheMaxSide &&
                          (entry.channels == 1 || entry.channels == 3);
    if (!has_size || entry.pixels_offset < sizeof(ImageCacheHeader) ||
        entry.pixels_offset > footer.table_offset ||
        static_cast<uint64_t>(NumPixelBytes(entry)) > footer.table_offset - entry.pixels_offset) {
      return Damaged(path_,
                     absl::StrCat("image ", i, " (", entry.height, " x ", entry.width, " x ",
                                  entry.channels, " at byte ", entry.pixels_offset,
                                  ") is not within the ", footer.table_offset, " bytes of pixels"));
    }
    if (entry.label >= footer.num_classes || entry.first_box > boxes_.size() ||
        entry.num_boxes > boxes_.size() - entry.first_box) {
      return Damaged(
          path_, absl::StrCat("image ", i, ": label ", entry.label, ", boxes ", entry.first_box,
                              " + ", entry.num_boxes, ", but ", footer.num_classes, " classes and ",
                              boxes_.size(), " boxes"));
    }
  }
  for (size_t i = 0; i < boxes_.size(); ++i) {
    if (boxes_[i].label >= footer.num_classes) {
      return Damaged(path_, absl::StrCat("box ", i, ": label ", boxes_[i].label, ", but ",
                                         footer.num_classes, " classes"));
    }
  }
  return absl::OkStatus();
}

absl::Status ImageCacheReader::Get(int64_t index, Example* example) const {
  CHECK_GE(index, 0);
  CHECK_LT(index, size());
  const ImageCacheEntry& entry = table_[index];
  Image& image = example->image;
  image.height = static_cast<int>(entry.height);
  image.width = static_cast<int>(entry.width);
  image.channels = static_cast<int>(entry.channels);
  image.pixels.resize(NumPixelBytes(entry));
  const absl::Status read = file_->ReadAt(static_cast<int64_t>(entry.pixels_offset),
                                          image.pixels.data(), NumPixelBytes(entry));
  if (absl::IsOutOfRange(read)) {
    return Damaged(path_, absl::StrCat("image ", index, " is cut off: ", read.message()));
  }
  if (!read.ok()) {
    return Annotated(read, absl::StrCat("image cache ", path_, ": image ", index,
                                        " cannot be read: ", read.message()));
  }
  const uint32_t crc = Crc32c(image.pixels.data(), image.pixels.size());
  if (crc != entry.pixels_crc) {
    return Damaged(path_, absl::StrFormat("image %d at byte %d: checksum is %08x, stored is %08x",
                                          index, entry.pixels_offset, crc, entry.pixels_crc));
  }
  example->label = static_cast<int32_t>(entry.label);
  example->boxes.clear();
  for (uint32_t i = 0; i < entry.num_boxes; ++i) {
    example->boxes.push_back(LoadedBox(boxes_[entry.first_box + i]));
  }
  return absl::OkStatus();
}

}  // namespace pushpull

#include "common/base/record_io.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/crc32c.h"
#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr int64_t kLengthBytes = 12;  // length and its checksum
constexpr int64_t kFooterBytes = 4;
// Data is read in pieces of this size, so the record's memory grows only as data arrives.
constexpr int64_t kReadBytes = int64_t{8} << 20;

void AppendLittleEndian(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t LittleEndian(const char* data, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    value |= static_cast<uint64_t>(static_cast<unsigned char>(data[i])) << (8 * i);
  }
  return value;
}

}  // namespace

void AppendRecord(absl::string_view data, std::string* out) {
  const size_t start = out->size();
  AppendLittleEndian(data.size(), 8, out);
  AppendLittleEndian(MaskCrc32c(Crc32c(out->data() + start, 8)), 4, out);
  out->append(data.data(), data.size());
  AppendLittleEndian(MaskCrc32c(Crc32c(data)), 4, out);
}

RecordReader::RecordReader(const ReadableFile* file, std::string path, int64_t offset)
    : file_(file), path_(std::move(path)), offset_(offset) {}

absl::Status RecordReader::Error(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(path_, " at byte ", offset_, ": ", what));
}

absl::Status RecordReader::EndsWithin(absl::string_view what) const {
  return Error(absl::StrCat("the file ends at byte ", file_->size_bytes(), ", within ", what,
                            "; copy or make the file again"));
}

absl::Status RecordReader::ReadAt(int64_t offset, char* destination, int64_t size) const {
  const absl::Status read = file_->ReadAt(offset, destination, size);
  if (!absl::IsOutOfRange(read)) return read;
  return Error(absl::StrCat("the file is shorter than when it was opened: ", read.message()));
}

absl::StatusOr<int64_t> RecordReader::ReadLength() const {
  const int64_t left = file_->size_bytes() - offset_;
  if (left == 0) return -1;
  std::array<char, kLengthBytes> header;
  const int64_t header_bytes = std::min(left, kLengthBytes);
  PP_RETURN_IF_ERROR(ReadAt(offset_, header.data(), header_bytes));
  if (offset_ == 0 && header_bytes >= 2 && header[0] == '\x1f' && header[1] == '\x8b') {
    return Error("this is a gzip file; decompress it first");
  }
  if (left < kLengthBytes) return EndsWithin("the length of a record");
  const uint64_t length = LittleEndian(header.data(), 8);
  const uint32_t length_crc = MaskCrc32c(Crc32c(header.data(), 8));
  if (const uint32_t stored = LittleEndian(header.data() + 8, 4); stored != length_crc) {
    return Error(
        absl::StrFormat("checksum of the length is %08x, expected %08x", stored, length_crc));
  }
  if (length > static_cast<uint64_t>(kMaxRecordBytes)) {
    return Error(
        absl::StrCat("record of ", length, " bytes, at most ", kMaxRecordBytes, " are allowed"));
  }
  if (left - kLengthBytes - kFooterBytes < static_cast<int64_t>(length)) {
    return EndsWithin(
        absl::StrCat("a record of ", length, " bytes that would end at byte ",
                     offset_ + kLengthBytes + static_cast<int64_t>(length) + kFooterBytes));
  }
  return static_cast<int64_t>(length);
}

absl::StatusOr<bool> RecordReader::Skip() {
  PP_ASSIGN_OR_RETURN(const int64_t length, ReadLength());
  if (length < 0) return false;
  offset_ += kLengthBytes + length + kFooterBytes;
  return true;
}

absl::StatusOr<bool> RecordReader::Next(std::string* record) {
  PP_ASSIGN_OR_RETURN(const int64_t length, ReadLength());
  if (length < 0) return false;
  record->clear();
  uint32_t crc = 0;
  for (int64_t done = 0; done < length; done = record->size()) {
    const int64_t bytes = std::min<int64_t>(length - done, kReadBytes);
    record->resize(done + bytes);
    PP_RETURN_IF_ERROR(ReadAt(offset_ + kLengthBytes + done, record->data() + done, bytes));
    crc = ExtendCrc32c(crc, record->data() + done, bytes);
  }
  std::array<char, kFooterBytes> footer;
  PP_RETURN_IF_ERROR(ReadAt(offset_ + kLengthBytes + length, footer.data(), kFooterBytes));
  if (const uint32_t stored = LittleEndian(footer.data(), 4); stored != MaskCrc32c(crc)) {
    return Error(
        absl::StrFormat("checksum of the record is %08x, expected %08x", stored, MaskCrc32c(crc)));
  }
  offset_ += kLengthBytes + length + kFooterBytes;
  return true;
}

}  // namespace pushpull

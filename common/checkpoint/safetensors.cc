#include "common/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

#include "common/base/status_macros.h"
#include "common/checkpoint/safetensors_parser.h"

namespace pushpull {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kDataAlignment = 64;
constexpr absl::string_view kMetadataKey = "__metadata__";

bool ByName(const SafetensorsTensor& a, const SafetensorsTensor& b) { return a.name < b.name; }

// Returns the size of a tensor in bytes, or nullopt for overflow, a negative dimension or an
// unknown dtype.
std::optional<int64_t> TensorBytes(const SafetensorsTensor& tensor) {
  std::optional<int64_t> bytes = SafetensorsElementBytes(tensor.dtype);
  if (!bytes.has_value()) return std::nullopt;
  for (const int64_t dimension : tensor.shape) {
    if (dimension < 0) return std::nullopt;
    if (__builtin_mul_overflow(*bytes, dimension, &*bytes)) return std::nullopt;
  }
  return bytes;
}

absl::Status CheckTensors(const std::vector<SafetensorsTensor>& tensors, int64_t data_bytes) {
  std::vector<const SafetensorsTensor*> by_place;
  for (const SafetensorsTensor& tensor : tensors) {
    const auto error = [&](absl::string_view what) {
      return absl::DataLossError(absl::StrCat("tensor ", tensor.name, ": ", what));
    };
    if (!SafetensorsElementBytes(tensor.dtype).has_value()) {
      return error(absl::StrCat("unknown dtype ", tensor.dtype));
    }
    const std::optional<int64_t> bytes = TensorBytes(tensor);
    if (!bytes.has_value()) return error("its shape overflows");
    if (tensor.end < tensor.begin || tensor.size_bytes() != *bytes) {
      return error(absl::StrCat("data_offsets [", tensor.begin, ", ", tensor.end, "], expected ",
                                *bytes, " bytes for its shape and dtype"));
    }
    by_place.push_back(&tensor);
  }
  // Compare by end too, so that an empty tensor sorts before the tensor that begins at its place.
  std::sort(by_place.begin(), by_place.end(), [](const auto* a, const auto* b) {
    return std::make_pair(a->begin, a->end) < std::make_pair(b->begin, b->end);
  });
  int64_t expected = 0;
  for (const SafetensorsTensor* tensor : by_place) {
    if (tensor->begin != expected) {
      return absl::DataLossError(absl::StrCat("tensor ", tensor->name, " begins at ", tensor->begin,
                                              ", expected ", expected, " (no hole, no overlap)"));
    }
    expected = tensor->end;
  }
  if (expected != data_bytes) {
    return absl::DataLossError(
        absl::StrCat("tensors cover ", expected, " bytes, the file has ", data_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<int64_t> SafetensorsElementBytes(absl::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  if (dtype == "F8_E4M3" || dtype == "F8_E5M2") return 1;
  return std::nullopt;
}

const SafetensorsTensor* SafetensorsHeader::Find(absl::string_view name) const {
  const auto it = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const SafetensorsTensor& tensor, absl::string_view wanted) {
                                     return absl::string_view(tensor.name) < wanted;
                                   });
  return it != tensors.end() && it->name == name ? &*it : nullptr;
}

absl::StatusOr<std::string> EncodeSafetensorsHeader(SafetensorsHeader* header) {
  std::sort(header->tensors.begin(), header->tensors.end(), ByName);
  const auto quote = [](const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  std::vector<std::string> entries;
  if (!header->metadata.empty()) {
    const auto pair = [&](std::string* out, const std::pair<const std::string, std::string>& item) {
      absl::StrAppend(out, quote(item.first), ":", quote(item.second));
    };
    entries.push_back(absl::StrCat(quote(std::string(kMetadataKey)), ":{",
                                   absl::StrJoin(header->metadata, ",", pair), "}"));
  }
  int64_t offset = 0;
  const std::string* previous = nullptr;
  for (SafetensorsTensor& tensor : header->tensors) {
    if (tensor.name == kMetadataKey || (previous != nullptr && *previous == tensor.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor name ", tensor.name, " is reserved or occurs twice"));
    }
    previous = &tensor.name;
    const std::optional<int64_t> bytes = TensorBytes(tensor);
    if (!bytes.has_value() || *bytes > std::numeric_limits<int64_t>::max() - offset) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", tensor.name, ": dtype ", tensor.dtype, " and shape [",
                       absl::StrJoin(tensor.shape, ","), "] have no size in bytes"));
    }
    tensor.begin = offset;
    tensor.end = offset + *bytes;
    offset = tensor.end;
    entries.push_back(absl::StrCat(quote(tensor.name), ":{\"dtype\":\"", tensor.dtype,
                                   "\",\"shape\":[", absl::StrJoin(tensor.shape, ","),
                                   "],\"data_offsets\":[", tensor.begin, ",", tensor.end, "]}"));
  }
  std::string json = absl::StrCat("{", absl::StrJoin(entries, ","), "}");
  const int64_t unpadded = kLengthBytes + static_cast<int64_t>(json.size());
  header->data_offset = (unpadded + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
  json.append(header->data_offset - unpadded, ' ');
  if (static_cast<int64_t>(json.size()) > SafetensorsHeader::kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("safetensors header of ", json.size(), " bytes"));
  }
  std::string bytes;
  for (int i = 0; i < kLengthBytes; ++i) {
    bytes.push_back(static_cast<char>(static_cast<uint64_t>(json.size()) >> (8 * i)));
  }
  return bytes + json;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes) {
  SafetensorsHeader header;
  PP_RETURN_IF_ERROR(ParseSafetensorsJson(json, &header));
  std::sort(header.tensors.begin(), header.tensors.end(), ByName);
  for (size_t i = 1; i < header.tensors.size(); ++i) {
    if (header.tensors[i].name == header.tensors[i - 1].name) {
      return absl::DataLossError(
          absl::StrCat("tensor ", header.tensors[i].name, " occurs twice in the header"));
    }
  }
  PP_RETURN_IF_ERROR(CheckTensors(header.tensors, data_bytes));
  header.data_offset = kLengthBytes + static_cast<int64_t>(json.size());
  return header;
}

SafetensorsReader::SafetensorsReader(std::unique_ptr<ReadableFile> file, std::string path,
                                     SafetensorsHeader header)
    : file_(std::move(file)), path_(std::move(path)), header_(std::move(header)) {}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    std::unique_ptr<ReadableFile> file, std::string path) {
  const auto error = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(path, ": ", what));
  };
  const int64_t size = file->size_bytes();
  if (size < kLengthBytes) return error(absl::StrCat("not a safetensors file: ", size, " bytes"));
  std::array<unsigned char, kLengthBytes> prefix;
  PP_RETURN_IF_ERROR(file->ReadAt(0, prefix.data(), kLengthBytes));
  uint64_t json_bytes = 0;
  for (int i = 0; i < kLengthBytes; ++i) json_bytes |= static_cast<uint64_t>(prefix[i]) << (8 * i);
  if (json_bytes >
      static_cast<uint64_t>(std::min(SafetensorsHeader::kMaxHeaderBytes, size - kLengthBytes))) {
    return error(absl::StrCat("header of ", json_bytes, " bytes in a file of ", size));
  }
  std::string json(json_bytes, '\0');
  PP_RETURN_IF_ERROR(file->ReadAt(kLengthBytes, json.data(), json.size()));
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(json, size - kLengthBytes - static_cast<int64_t>(json.size()));
  if (!header.ok()) return error(header.status().message());
  return std::unique_ptr<SafetensorsReader>(
      new SafetensorsReader(std::move(file), std::move(path), *std::move(header)));
}

absl::Status SafetensorsReader::Read(const SafetensorsTensor& tensor, int64_t offset,
                                     void* destination, int64_t size) const {
  if (offset < 0 || size < 0 || offset > tensor.size_bytes() - size) {
    return absl::OutOfRangeError(absl::StrCat(path_, ": bytes [", offset, ", ", offset + size,
                                              ") of tensor ", tensor.name, ", which has ",
                                              tensor.size_bytes()));
  }
  return file_->ReadAt(header_.data_offset + tensor.begin + offset, destination, size);
}

}  // namespace pushpull

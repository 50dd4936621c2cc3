#include "common/wire/grpc/chunk_message.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/wire/grpc/chunk_memory.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {
namespace {

constexpr uint32_t kPayloadField = 15;
static_assert(ps::PushChunk::kPayloadFieldNumber == kPayloadField);
static_assert(ps::PullChunk::kPayloadFieldNumber == kPayloadField);

constexpr uint32_t kWireVarint = 0;
constexpr uint32_t kWireFixed64 = 1;
constexpr uint32_t kWireBytes = 2;
constexpr uint32_t kWireFixed32 = 5;
constexpr uint8_t kPayloadTag = kPayloadField << 3 | kWireBytes;

void DropOwner(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }
void KeepMemory(void*) {}

grpc::Slice SliceOf(const Payload& payload) {
  char* data = const_cast<char*>(payload.data);  // gRPC only reads it
  if (payload.owner == nullptr) return grpc::Slice(data, payload.size_bytes, KeepMemory);
  return grpc::Slice(data, payload.size_bytes, DropOwner,
                     new std::shared_ptr<const void>(payload.owner));
}

// Reads the bytes of several slices in order.
class SliceCursor {
 public:
  explicit SliceCursor(const std::vector<grpc::Slice>& slices) : slices_(slices) {
    for (const auto& slice : slices) remaining_ += slice.size();
    SkipEmpty();
  }

  size_t remaining() const { return remaining_; }

  // Like protobuf, accepts up to ten bytes and drops the bits beyond 64.
  bool ReadVarint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (remaining_ == 0) return false;
      const uint8_t byte = slices_[index_].begin()[offset_];
      Advance(1);
      if (shift < 64) *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

  // The contiguous bytes that start here, at most `limit`.
  const char* Piece(size_t limit, size_t* size_bytes) const {
    if (remaining_ == 0) {
      *size_bytes = 0;
      return nullptr;
    }
    *size_bytes = std::min(limit, slices_[index_].size() - offset_);
    return reinterpret_cast<const char*>(slices_[index_].begin()) + offset_;
  }

  // `bytes` must not reach beyond the current piece.
  void Advance(size_t bytes) {
    offset_ += bytes;
    remaining_ -= bytes;
    SkipEmpty();
  }

  // size_bytes <= remaining().
  void CopyTo(size_t size_bytes, char* out) {
    Consume(size_bytes, [&out](const char* piece, size_t piece_bytes) {
      std::memcpy(out, piece, piece_bytes);
      out += piece_bytes;
    });
  }

  // size_bytes <= remaining().
  void Skip(size_t size_bytes) {
    Consume(size_bytes, [](const char*, size_t) {});
  }

  // The next bytes as a payload, without a copy if they are contiguous in memory.
  // size_bytes <= remaining().
  Payload Take(size_t size_bytes) {
    Payload payload;
    payload.size_bytes = size_bytes;
    if (size_bytes == 0 || Share(size_bytes, &payload)) return payload;
    std::shared_ptr<char[]> gathered = TakeChunkMemory(size_bytes);
    payload.crc32c = CopyWithChecksum(size_bytes, gathered.get());
    payload.data = gathered.get();
    payload.owner = std::move(gathered);
    return payload;
  }

  // Copies, and returns the CRC32C of the bytes. size_bytes <= remaining().
  uint32_t CopyWithChecksum(size_t size_bytes, char* out) {
    uint32_t crc = 0;
    Consume(size_bytes, [&](const char* piece, size_t piece_bytes) {
      crc = CopyAndExtendCrc32c(crc, piece, piece_bytes, out);
      out += piece_bytes;
    });
    return crc;
  }

 private:
  // Calls `use` for each contiguous piece of the next bytes.
  template <typename Use>
  void Consume(size_t size_bytes, Use use) {
    while (size_bytes > 0) {
      size_t piece_bytes = 0;
      const char* piece = Piece(size_bytes, &piece_bytes);
      use(piece, piece_bytes);
      size_bytes -= piece_bytes;
      Advance(piece_bytes);
    }
  }

  // Slices can be adjacent in memory because gRPC's socket reader may fill one buffer with several
  // reads and return a slice of it for each.
  bool Share(size_t size_bytes, Payload* payload) const {
    SliceCursor probe = *this;
    size_t last = index_;
    const char* expected = nullptr;
    bool touching = true;
    for (size_t left = size_bytes; left > 0 && touching;) {
      size_t piece_bytes = 0;
      const char* piece = probe.Piece(left, &piece_bytes);
      touching = expected == nullptr || piece == expected;
      expected = piece + piece_bytes;
      left -= piece_bytes;
      last = probe.index_;
      probe.Advance(piece_bytes);
    }
    if (!touching) return false;
    auto shared = std::make_shared<const std::vector<grpc::Slice>>(slices_.begin() + index_,
                                                                   slices_.begin() + last + 1);
    // Not the address found above: a short slice holds its bytes inline, so copying it moved them.
    payload->data = reinterpret_cast<const char*>(shared->front().begin()) + offset_;
    payload->owner = std::move(shared);
    return true;
  }

  void SkipEmpty() {
    while (index_ < slices_.size() && offset_ == slices_[index_].size()) {
      ++index_;
      offset_ = 0;
    }
  }

  const std::vector<grpc::Slice>& slices_;
  size_t index_ = 0;
  size_t offset_ = 0;
  size_t remaining_ = 0;
};

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed chunk: ", what));
}

void AppendVarint(uint64_t value, std::string* out) {
  uint8_t bytes[10];
  const uint8_t* end = google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(value, bytes);
  out->append(reinterpret_cast<const char*>(bytes), end - bytes);
}

// Appends a field other than the payload, whose tag has just been read, to the bytes that protobuf
// parses as the header.
absl::Status CopyHeaderField(uint64_t tag, SliceCursor* cursor, std::string* header) {
  AppendVarint(tag, header);
  uint64_t size_bytes = 0;
  switch (tag & 7) {
    case kWireVarint: {
      uint64_t value = 0;
      if (!cursor->ReadVarint(&value)) return Malformed("ends within a number");
      AppendVarint(value, header);
      return absl::OkStatus();
    }
    case kWireFixed64:
      size_bytes = 8;
      break;
    case kWireFixed32:
      size_bytes = 4;
      break;
    case kWireBytes:
      if (!cursor->ReadVarint(&size_bytes)) return Malformed("ends within a length");
      AppendVarint(size_bytes, header);
      break;
    default:
      return Malformed(absl::StrCat("field ", tag >> 3, " has wire type ", tag & 7));
  }
  if (size_bytes > cursor->remaining()) {
    return Malformed(absl::StrCat("field ", tag >> 3, " claims ", size_bytes, " bytes where ",
                                  cursor->remaining(), " are left"));
  }
  if (header->size() + size_bytes > kMaxChunkHeaderBytes) {
    return Malformed(absl::StrCat("the header is larger than ", kMaxChunkHeaderBytes, " bytes"));
  }
  const size_t old_size = header->size();
  header->resize(old_size + size_bytes);
  cursor->CopyTo(size_bytes, header->data() + old_size);
  return absl::OkStatus();
}

struct PayloadPosition {
  SliceCursor cursor;  // at the first byte
  size_t size_bytes;
};

// Fills `header`, and `payload` if there is one. The payload's cursor refers to `slices`.
absl::Status DecodeFields(const grpc::ByteBuffer& buffer, std::vector<grpc::Slice>* slices,
                          google::protobuf::MessageLite* header,
                          std::optional<PayloadPosition>* payload) {
  if (buffer.Valid() && !buffer.Dump(slices).ok()) return Malformed("unreadable buffer");
  SliceCursor cursor(*slices);
  std::string header_bytes;
  while (cursor.remaining() > 0) {
    uint64_t tag = 0;
    if (!cursor.ReadVarint(&tag)) return Malformed("ends within a tag");
    if (tag >> 32 != 0 || tag >> 3 == 0) return Malformed(absl::StrCat("bad tag ", tag));
    if (tag != kPayloadTag) {
      PP_RETURN_IF_ERROR(CopyHeaderField(tag, &cursor, &header_bytes));
      if (header_bytes.size() > kMaxChunkHeaderBytes) {
        return Malformed(
            absl::StrCat("the header is larger than ", kMaxChunkHeaderBytes, " bytes"));
      }
      continue;
    }
    if (payload->has_value()) return Malformed("more than one payload");
    uint64_t size_bytes = 0;
    if (!cursor.ReadVarint(&size_bytes)) return Malformed("ends within the payload's length");
    if (size_bytes > cursor.remaining()) {
      return Malformed(absl::StrCat("the payload claims ", size_bytes, " bytes where ",
                                    cursor.remaining(), " are left"));
    }
    payload->emplace(PayloadPosition{cursor, size_bytes});
    cursor.Skip(size_bytes);
  }
  if (!header->ParseFromArray(header_bytes.data(), static_cast<int>(header_bytes.size()))) {
    return Malformed("the header is not a valid protobuf");
  }
  return absl::OkStatus();
}

}  // namespace

grpc::ByteBuffer SerializeChunk(const google::protobuf::MessageLite& header,
                                const Payload& payload) {
  std::string bytes;
  header.AppendToString(&bytes);
  if (payload.size_bytes == 0) {
    const grpc::Slice slice(bytes);
    return grpc::ByteBuffer(&slice, 1);
  }
  bytes.push_back(static_cast<char>(kPayloadTag));
  AppendVarint(payload.size_bytes, &bytes);
  const grpc::Slice slices[2] = {grpc::Slice(bytes), SliceOf(payload)};
  return grpc::ByteBuffer(slices, 2);
}

absl::Status ParseChunk(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* header,
                        Payload* payload) {
  *payload = Payload();
  std::vector<grpc::Slice> slices;
  std::optional<PayloadPosition> found;
  PP_RETURN_IF_ERROR(DecodeFields(buffer, &slices, header, &found));
  if (found.has_value()) *payload = found->cursor.Take(found->size_bytes);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> ParseChunkInto(const grpc::ByteBuffer& buffer,
                                        google::protobuf::MessageLite* header, ChunkPlaceFn place) {
  std::vector<grpc::Slice> slices;
  std::optional<PayloadPosition> found;
  PP_RETURN_IF_ERROR(DecodeFields(buffer, &slices, header, &found));
  PP_ASSIGN_OR_RETURN(char* const out, place(found.has_value() ? found->size_bytes : 0));
  return found.has_value() ? found->cursor.CopyWithChecksum(found->size_bytes, out) : 0;
}

}  // namespace pushpull

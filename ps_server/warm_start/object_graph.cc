#include "ps_server/warm_start/object_graph.h"

#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"

#include "common/base/crc32c.h"
#include "protos/tensor_bundle.pb.h"

namespace pushpull {

absl::StatusOr<std::map<std::string, std::string>> ReadObjectGraph(absl::string_view bytes,
                                                                   uint32_t crc32c,
                                                                   absl::string_view path) {
  const auto damaged = [&path](absl::string_view problem) {
    return absl::DataLossError(absl::StrCat(path, ": the tensor ", kObjectGraphKey, " ", problem,
                                            ": the file is damaged"));
  };
  if (bytes.size() > std::numeric_limits<int32_t>::max()) return damaged("is too long");
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  uint64_t length = 0;
  uint32_t length_crc = 0;
  if (!stream.ReadVarint64(&length) || !stream.ReadLittleEndian32(&length_crc) ||
      length != bytes.size() - stream.CurrentPosition()) {
    return damaged("has a wrong length");
  }
  const absl::string_view text = bytes.substr(stream.CurrentPosition());
  // The string follows the length's checksum.
  const absl::string_view rest = bytes.substr(stream.CurrentPosition() - sizeof(length_crc));
  const auto fixed_length = static_cast<uint32_t>(length);
  std::string checked(sizeof(fixed_length), '\0');
  std::memcpy(checked.data(), &fixed_length, sizeof(fixed_length));
  if (Crc32c(checked.data(), checked.size()) != UnmaskCrc32c(length_crc)) {
    return damaged("has a wrong checksum of its length");
  }
  absl::StrAppend(&checked, rest);
  if (Crc32c(checked.data(), checked.size()) != UnmaskCrc32c(crc32c)) {
    return damaged("has a wrong checksum");
  }
  tensorflow::TrackableObjectGraph graph;
  if (!graph.ParseFromArray(text.data(), static_cast<int>(text.size()))) {
    return damaged("is malformed");
  }
  std::map<std::string, std::string> names;
  for (const auto& node : graph.nodes()) {
    for (const auto& attribute : node.attributes()) {
      if (!attribute.full_name().empty()) {
        names.emplace(attribute.checkpoint_key(), attribute.full_name());
      }
    }
  }
  return names;
}

}  // namespace pushpull

#include "ps_server/transport/connection_preface.h"

#include <cstdint>

#include "absl/strings/strip.h"

namespace pushpull {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr uint8_t kSettingsFrame = 4;
constexpr uint8_t kAck = 1;
constexpr uint32_t kSettingBytes = 6;
constexpr uint32_t kMaxSettingsBytes = 1 << 14;  // HTTP/2's frame limit until the server raises it
constexpr uint8_t kHandshakeRecord = 22;
constexpr uint8_t kClientHello = 1;
constexpr uint32_t kMaxRecordBytes = 1 << 14;

bool BeginsAsHttp2(absl::string_view bytes) {
  if (!absl::ConsumePrefix(&bytes, kPreface)) return false;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint32_t length = byte(0) << 16 | byte(1) << 8 | byte(2);
  const uint32_t stream = (byte(5) & 0x7fu) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8);
  return byte(3) == kSettingsFrame && (byte(4) & kAck) == 0 && stream == 0 &&
         length % kSettingBytes == 0 && length <= kMaxSettingsBytes;
}

bool BeginsAsTls(absl::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint32_t length = byte(3) << 8 | byte(4);
  return byte(0) == kHandshakeRecord && byte(1) == 3 && byte(2) <= 4 && length >= 4 &&
         length <= kMaxRecordBytes && byte(5) == kClientHello;
}

}  // namespace

bool BeginsAs(ConnectionPreface preface, absl::string_view bytes) {
  if (bytes.size() < PrefaceSize(preface)) return false;
  return preface == ConnectionPreface::kTls ? BeginsAsTls(bytes) : BeginsAsHttp2(bytes);
}

}  // namespace pushpull

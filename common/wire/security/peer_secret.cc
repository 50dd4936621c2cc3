#include "common/wire/security/peer_secret.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <openssl/crypto.h>

#include <initializer_list>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/base/hmac.h"
#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/wire/security/private_file.h"

namespace pushpull {
namespace {

constexpr size_t kMinSecretBytes = 16;

// Both sides must serialise a message to the same bytes. Protobuf guarantees that within one build
// if the output is deterministic; the messages have no maps.
std::string BytesOf(const google::protobuf::MessageLite& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

// Puts the length before each part, so that different lists of parts never give the same text.
std::string Join(std::initializer_list<absl::string_view> parts) {
  std::string text;
  for (const absl::string_view part : parts) absl::StrAppend(&text, part.size(), ":", part);
  return text;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const PeerSecret>> PeerSecret::Create(absl::string_view text) {
  const absl::string_view key = absl::StripAsciiWhitespace(text);
  if (key.size() < kMinSecretBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", key.size(), " bytes, expected at least ", kMinSecretBytes,
                     " that nobody can guess; `openssl rand -hex 32` makes them"));
  }
  return std::shared_ptr<const PeerSecret>(new PeerSecret(std::string(key)));
}

absl::StatusOr<std::shared_ptr<const PeerSecret>> PeerSecret::Read(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSecurityFile(path, Secrecy::kPrivate);
  absl::StatusOr<std::shared_ptr<const PeerSecret>> secret =
      text.ok() ? Create(*text) : text.status();
  if (secret.ok()) return secret;
  return Annotated(secret.status(),
                   absl::StrCat("the ps tasks' secret ", path, ": ", secret.status().message()));
}

std::shared_ptr<const PeerSecret> PeerSecret::Random() {
  return std::shared_ptr<const PeerSecret>(new PeerSecret(absl::BytesToHexString(NewHmacKey())));
}

absl::Status PeerSecret::Save(FileSystem& files, const std::string& path) const {
  absl::Status saved = WriteFileAtomically(files, path, absl::StrCat(key_, "\n"));
  // A file system may have given the file another mode, with which no task would read it.
  if (saved.ok()) saved = Read(path).status();
  if (!saved.ok()) files.RemoveFile(path).IgnoreError();
  return saved;
}

std::string PeerSecret::ProveRequest(absl::string_view method,
                                     const google::protobuf::MessageLite& request) const {
  return Hmac(key_, Join({"request", method, BytesOf(request)}));
}

std::string PeerSecret::ProveAnswer(absl::string_view request_proof, const grpc::Status& status,
                                    const google::protobuf::MessageLite& reply) const {
  if (status.ok()) return Hmac(key_, Join({"answer", request_proof, BytesOf(reply)}));
  return Hmac(key_, Join({"error", request_proof, absl::StrCat(status.error_code()),
                          status.error_message(), status.error_details()}));
}

bool SameProof(absl::string_view a, absl::string_view b) {
  return !a.empty() && a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string FindPeerProof(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) {
  const auto [begin, end] = metadata.equal_range(kPeerProofKey);
  if (begin == end || std::next(begin) != end) return "";
  return std::string(begin->second.data(), begin->second.size());
}

}  // namespace pushpull

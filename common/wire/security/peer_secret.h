// A secret shared by the ps tasks of a job, for jobs without TLS. With it, a shard recognises the
// orders of its coordinator (Restore, MeasureNorm, Apply, Snapshot, EndTask) among the calls of
// everyone who reaches its port, and the coordinator recognises the answers of its shards.
//
// The secret is never sent. The metadata of an order contains an HMAC (the proof) over its method
// and its bytes, which include the run and the epoch. The trailers of its answer contain an HMAC
// over the proof and the answer. An eavesdropper can repeat an order, but not alter it. A repeated
// order is refused if its epoch is over, and within its epoch it changes nothing, because it has
// been carried out already.
#ifndef PUSHPULL_COMMON_WIRE_SECURITY_PEER_SECRET_H_
#define PUSHPULL_COMMON_WIRE_SECURITY_PEER_SECRET_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/status.h>
#include <grpcpp/support/string_ref.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/file_system.h"

namespace pushpull {

// Metadata key of the proofs in requests and in the trailers of answers.
inline constexpr char kPeerProofKey[] = "pushpull-peer-proof-bin";

// Thread-safe, because it is immutable.
class PeerSecret {
 public:
  // Makes a secret of `text` without the white space around it. INVALID_ARGUMENT: fewer than 16
  // bytes remain.
  static absl::StatusOr<std::shared_ptr<const PeerSecret>> Create(absl::string_view text);
  // Reads the secret from a file that only its owner may read. Errors name the path: NOT_FOUND,
  // PERMISSION_DENIED and INVALID_ARGUMENT, as from ReadSecurityFile and Create.
  static absl::StatusOr<std::shared_ptr<const PeerSecret>> Read(const std::string& path);
  // Returns a secret of 32 random bytes.
  static std::shared_ptr<const PeerSecret> Random();
  // Writes the secret to a file that Read can read. Only one process may call this for a path at a
  // time, and only if there is no such file. Removes it again after an error. Also returns the
  // errors of Read.
  absl::Status Save(FileSystem& files, const std::string& path) const;

  // The proof of a request. method is the name without a path, such as "Restore".
  std::string ProveRequest(absl::string_view method,
                           const google::protobuf::MessageLite& request) const;
  // The proof of the answer to the request with the proof `request_proof`. It covers `reply` if
  // `status` is OK, otherwise the code, the message and the details of `status`.
  std::string ProveAnswer(absl::string_view request_proof, const grpc::Status& status,
                          const google::protobuf::MessageLite& reply) const;

 private:
  explicit PeerSecret(std::string key) : key_(std::move(key)) {}

  const std::string key_;
};

// Returns whether two proofs are equal and not empty. Takes the same time wherever they differ.
bool SameProof(absl::string_view a, absl::string_view b);

// The proof in a call's metadata. Empty if there is none, or more than one.
std::string FindPeerProof(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_SECURITY_PEER_SECRET_H_

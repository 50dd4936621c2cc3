// What the ps tasks of a job share where there is no TLS: by it a shard tells the orders of its own
// coordinator (Restore, MeasureNorm, Apply, Snapshot, EndTask) from those of anybody else who
// reaches its port, and the coordinator tells the answers of its own shards.
//
// The secret never travels. Each order carries, as metadata, an HMAC over its method and its bytes,
// which hold the run and the epoch; its answer carries one over that proof and the answer. Whoever
// listens can repeat an order, but only as it was: of an epoch that is over it is refused, and in
// its own epoch it changes nothing that has not been done.
#ifndef PUSHPULL_COMMON_RPC_SECURITY_PEER_SECRET_H_
#define PUSHPULL_COMMON_RPC_SECURITY_PEER_SECRET_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/status.h>
#include <grpcpp/support/string_ref.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/file_system.h"

namespace pushpull {

// Metadata key of a proof, in requests and in the trailers of answers.
inline constexpr char kPeerProofKey[] = "pushpull-peer-proof-bin";

// Immutable, so thread-safe.
class PeerSecret {
 public:
  // text: at least 16 bytes, spaces around them not counted. INVALID_ARGUMENT: less.
  static absl::StatusOr<std::shared_ptr<const PeerSecret>> Create(absl::string_view text);
  // From a file that nobody but its owner may read. Errors name the path: NOT_FOUND,
  // PERMISSION_DENIED and INVALID_ARGUMENT as ReadSecurityFile and Create.
  static absl::StatusOr<std::shared_ptr<const PeerSecret>> Read(const std::string& path);
  // Also makes the file, with a random secret, if there is none. One process at a time.
  static absl::StatusOr<std::shared_ptr<const PeerSecret>> ReadOrMake(FileSystem& files,
                                                                      const std::string& path);

  // method: "Restore".
  std::string ProveRequest(absl::string_view method,
                           const google::protobuf::MessageLite& request) const;
  // Of the answer to the request with this proof. reply counts where the status is OK.
  std::string ProveAnswer(absl::string_view request_proof, const grpc::Status& status,
                          const google::protobuf::MessageLite& reply) const;

 private:
  explicit PeerSecret(std::string key) : key_(std::move(key)) {}

  const std::string key_;
};

// In a time that does not tell where they differ.
bool SameProof(absl::string_view a, absl::string_view b);

// The proof among a call's metadata; empty: none, or several.
std::string FindPeerProof(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_SECURITY_PEER_SECRET_H_

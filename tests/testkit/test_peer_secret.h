// The secret that the ps tasks of one job share in tests.
#ifndef PUSHPULL_TESTS_TESTKIT_TEST_PEER_SECRET_H_
#define PUSHPULL_TESTS_TESTKIT_TEST_PEER_SECRET_H_

#include <memory>

#include "absl/strings/string_view.h"

#include "common/wire/grpc/channel_options.h"
#include "common/wire/security/peer_secret.h"

namespace pushpull {

inline TransportOptions WithPeerSecret(absl::string_view secret = "the secret of this job") {
  TransportOptions options;
  options.peer_secret = PeerSecret::Create(secret).value();
  return options;
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_TEST_PEER_SECRET_H_

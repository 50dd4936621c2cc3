// A PsClient whose calls all fail. Tests override the calls that they need.
#ifndef PUSHPULL_TESTS_TESTKIT_REFUSING_PS_CLIENT_H_
#define PUSHPULL_TESTS_TESTKIT_REFUSING_PS_CLIENT_H_

#include <memory>
#include <string>

#include "common/wire/ps_client.h"

namespace pushpull {

// StartPush returns a null stream, so a test that pushes has to override it.
class RefusingPsClient : public PsClient {
 public:
  const std::string& address() const override { return address_; }
#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof) \
  absl::StatusOr<ps::Reply> Name(const ps::Request&, absl::Duration) override { return Refused(); }
  PUSHPULL_UNARY_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW
  std::unique_ptr<PushStream> StartPush(absl::Duration) override { return nullptr; }
  absl::Status Pull(const ps::PullRequest&, absl::Duration, PullSink) override { return Refused(); }

 private:
  static absl::Status Refused() { return absl::UnimplementedError("not for this test"); }

  const std::string address_ = "test";
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_REFUSING_PS_CLIENT_H_

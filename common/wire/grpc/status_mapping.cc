#include "common/wire/grpc/status_mapping.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/passing_error.h"
#include "common/base/utf8.h"
#include "common/wire/error_detail.h"
#include "protos/parameter_server.pb.h"
#include "protos/rpc_status.pb.h"

namespace pushpull {
namespace {

// gRPC limits the metadata of a call to 8 KiB by default. The message travels twice, once
// percent-encoded, which can triple its size.
constexpr size_t kMaxMessageBytes = 1024;

// What to add to gRPC's message if no connection could be made, because its words do not say what a
// user may do.
struct Hint {
  absl::string_view part;  // of the message
  absl::string_view text;
};
constexpr absl::string_view kClosed =
    "; what listens there closes each connection, and its log may say why: perhaps one side uses "
    "TLS and the other does not";
constexpr absl::string_view kSilent =
    "; what listens there does not answer: its process may be stopped or overloaded, or it is no "
    "ps_server";
constexpr absl::string_view kForeign =
    "; what listens there has a certificate that no authority in --tls_ca has signed, or that is "
    "not valid now: perhaps it belongs to another job";
constexpr absl::string_view kNoOwnFiles =
    "; this process has no TLS certificate and key that fit together at present: its log says what "
    "is wrong with the files";
constexpr Hint kHints[] = {{"reset by peer", kClosed},
                           {"Socket closed", kClosed},
                           {"before receiving SETTINGS frame", kSilent},
                           {"Handshake read failed", kSilent},
                           {"certificate verify failed", kForeign},
                           {"Failed to create security handshaker", kNoOwnFiles}};

absl::string_view HintFor(absl::string_view message) {
  if (!absl::StrContains(message, "failed to connect to all addresses")) return "";
  for (const Hint& hint : kHints) {
    if (absl::StrContains(message, hint.part)) return hint.text;
  }
  return "";
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // The message may name a file, whose name may have any bytes.
  const std::string message = ShortUtf8(status.message(), kMaxMessageBytes);
  const auto code = static_cast<grpc::StatusCode>(status.code());
  ps::ErrorDetail detail = GetErrorDetail(status);
  if (IsPassing(status)) detail.set_may_pass(true);
  if (detail.kind() == ps::ErrorDetail::UNKNOWN && !detail.may_pass()) {
    return grpc::Status(code, message);
  }
  if (detail.variable().size() > kMaxMessageBytes) detail.clear_variable();
  ps::RpcStatus rich;
  rich.set_code(code);
  rich.set_message(message);
  rich.add_details()->PackFrom(detail);
  return grpc::Status(code, message, rich.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status, absl::string_view context) {
  if (status.ok()) return absl::OkStatus();
  const int number = status.error_code();
  const bool known = number > 0 && number <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  const std::string& message = status.error_message();
  absl::Status result(
      known ? static_cast<absl::StatusCode>(number) : absl::StatusCode::kUnknown,
      absl::StrCat(context, context.empty() ? "" : ": ", message, HintFor(message)));
  ps::RpcStatus rich;
  if (!status.error_details().empty() && rich.ParseFromString(status.error_details())) {
    for (const auto& any : rich.details()) {
      ps::ErrorDetail detail;
      if (any.UnpackTo(&detail)) {
        AttachErrorDetail(detail, &result);
        if (detail.may_pass()) result = MarkPassing(std::move(result));
        break;
      }
    }
  }
  return result;
}

}  // namespace pushpull

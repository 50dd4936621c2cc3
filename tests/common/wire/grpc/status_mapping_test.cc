#include "common/wire/grpc/status_mapping.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "common/wire/error_detail.h"

namespace pushpull {
namespace {

TEST(StatusMappingTest, KeepsCodesAndMessagesInBothDirections) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK, "x").ok());
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    const absl::Status back = FromGrpcStatus(ToGrpcStatus(status), "Push to a:1");
    EXPECT_EQ(back.code(), status.code());
    EXPECT_EQ(back.message(), "Push to a:1: why");
  }
}

TEST(StatusMappingTest, ExplainsAPeerToWhichNoConnectionIsMade) {
  const auto explained = [](const std::string& reason, absl::string_view words) {
    const absl::Status status = FromGrpcStatus(
        {grpc::StatusCode::UNAVAILABLE,
         absl::StrCat("failed to connect to all addresses; last error: UNAVAILABLE: ", reason)},
        "GetJob at a:1");
    return absl::StrContains(status.message(), words);
  };
  const std::string peer = "ipv4:1.2.3.4:1: ";
  EXPECT_TRUE(explained(peer + "recvmsg:Connection reset by peer", "perhaps one side uses TLS"));
  EXPECT_TRUE(explained(peer + "Socket closed", "perhaps one side uses TLS"));
  EXPECT_TRUE(explained(peer + "connection attempt timed out before receiving SETTINGS frame",
                        "may be stopped or overloaded"));
  EXPECT_TRUE(explained(peer + "Handshake read failed", "may be stopped or overloaded"));
  EXPECT_TRUE(explained(peer + "Tls handshake failed: SSL_ERROR_SSL: error:0A000086:SSL "
                               "routines::certificate verify failed",
                        "no authority in --tls_ca has signed"));
  EXPECT_TRUE(explained(peer + "Failed to create security handshaker", "its log says"));
  EXPECT_FALSE(explained(peer + "Failed to connect to remote host: Connection refused",
                         "what listens there"));
}

TEST(StatusMappingTest, KeepsTheDetail) {
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::NON_FINITE);
  detail.set_variable("MobilenetV2/Conv/weights");
  detail.set_index(17);
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(MakeError(detail, "nan")), "");
  EXPECT_EQ(back.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(back.message(), "nan");
  EXPECT_EQ(GetErrorDetail(back).SerializeAsString(), detail.SerializeAsString());
}

TEST(StatusMappingTest, KeepsTheMarkOfAnErrorThatMayPass) {
  const absl::Status full = MarkPassing(absl::ResourceExhaustedError("no space left"));
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(full), "Restore at a:1");
  EXPECT_TRUE(IsPassing(back));
  EXPECT_TRUE(absl::IsResourceExhausted(back));
  EXPECT_EQ(back.message(), "Restore at a:1: no space left");
  EXPECT_EQ(GetErrorDetail(back).kind(), ps::ErrorDetail::UNKNOWN);
  EXPECT_TRUE(IsPassing(FromGrpcStatus(ToGrpcStatus(back), ""))) << "a second hop";

  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::VERSION_GONE);
  const absl::Status gone = FromGrpcStatus(ToGrpcStatus(MakeError(detail, "gone")), "");
  EXPECT_FALSE(IsPassing(gone));
  const absl::Status marked = FromGrpcStatus(ToGrpcStatus(MarkPassing(gone)), "");
  EXPECT_TRUE(IsPassing(marked));
  EXPECT_EQ(GetErrorDetail(marked).kind(), ps::ErrorDetail::VERSION_GONE);

  const absl::Status plain = FromGrpcStatus(ToGrpcStatus(absl::InternalError("a bug")), "");
  EXPECT_FALSE(IsPassing(plain));
}

TEST(StatusMappingTest, ToleratesUnknownCodesAndMalformedDetails) {
  const grpc::Status garbage(grpc::StatusCode::ABORTED, "m", "\xff\xfenot a proto");
  const absl::Status back = FromGrpcStatus(garbage, "");
  EXPECT_EQ(back.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(GetErrorDetail(back).kind(), ps::ErrorDetail::UNKNOWN);
  // gRPC has no such code, but its type can hold it.
  const grpc::Status unknown(static_cast<grpc::StatusCode>(20), "m");
  EXPECT_EQ(FromGrpcStatus(unknown, "").code(), absl::StatusCode::kUnknown);
}

// The strings of a message have to be UTF-8, or its other fields are lost with them.
TEST(StatusMappingTest, KeepsTheDetailOfAMessageThatIsNotUtf8) {
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::STOPPED);
  const absl::Status stopped = MakeError(detail, "M\xfcller: no checkpoint");
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(stopped), "");
  EXPECT_EQ(GetErrorDetail(back).kind(), ps::ErrorDetail::STOPPED);
  EXPECT_EQ(back.message(), "M\xef\xbf\xbdller: no checkpoint");
  const absl::Status full = MarkPassing(absl::ResourceExhaustedError("M\xfcller: no space left"));
  EXPECT_TRUE(IsPassing(FromGrpcStatus(ToGrpcStatus(full), "")));
}

TEST(StatusMappingTest, CutsLongMessagesBetweenCharacters) {
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::WRONG_RUN);
  for (size_t size = 1010; size < 1030; ++size) {
    std::string message(size, 'x');
    for (int i = 0; i < 10; ++i) message += "\xc3\xa9";
    const grpc::Status status = ToGrpcStatus(MakeError(detail, message));
    EXPECT_LE(status.error_message().size(), 1024);
    EXPECT_EQ(GetErrorDetail(FromGrpcStatus(status, "")).kind(), ps::ErrorDetail::WRONG_RUN)
        << size;
  }
}

TEST(StatusMappingTest, CutsLongMessages) {
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::WRONG_RUN);
  detail.set_variable(std::string(10000, 'v'));
  const grpc::Status status = ToGrpcStatus(MakeError(detail, std::string(100000, 'x')));
  EXPECT_LE(status.error_message().size(), 1024);
  EXPECT_LE(status.error_details().size(), 2048);
  EXPECT_EQ(GetErrorDetail(FromGrpcStatus(status, "")).kind(), ps::ErrorDetail::WRONG_RUN);
}

}  // namespace
}  // namespace pushpull

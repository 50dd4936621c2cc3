#include "common/wire/transport_security.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

TEST(TransportSecurityTest, RefusesPathsOfUnixSocketsThatCannotBeReached) {
  for (const std::string& path :
       {std::string("/tmp/ps.sock"), std::string("ps"), std::string("///tmp/ps"),
        std::string("/tmp/M\xc3\xbcller @+;=[x]~"), "/" + std::string(106, 'x')}) {
    const absl::StatusOr<std::string> taken = UnixSocketPath("unix:" + path);
    ASSERT_TRUE(taken.ok()) << path << ": " << taken.status();
    EXPECT_EQ(*taken, path);
  }
  const auto refusal = [](const std::string& path) {
    const absl::Status status = UnixSocketPath("unix:" + path).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << path << ": " << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(""), HasSubstr("is empty, expected unix:/path"));
  EXPECT_THAT(refusal("/" + std::string(107, 'x')),
              HasSubstr("has 108 bytes, allowed are 1 to 107"));
  for (const char bad : {'#', '%', ',', '?'}) {
    EXPECT_THAT(refusal(std::string("/tmp/a") + bad + "b"),
                HasSubstr(std::string("has the character ") + bad + ","));
  }
  EXPECT_THAT(refusal(std::string("/tmp/a\0b", 8)), HasSubstr("has the character \\000,"));
  EXPECT_THAT(refusal("//host/ps"), HasSubstr("begins with two slashes"));
  EXPECT_THAT(refusal("/tmp/M\xfcller"), HasSubstr("is not UTF-8"));
}

TEST(TransportSecurityTest, OnlyAddressesOfThisMachineAreLocal) {
  for (const char* address :
       {"unix:/tmp/ps.sock", "127.0.0.1:2222", "127.8.9.1:1", "localhost:2222", "LocalHost:2222",
        "[::1]:2222", "::1", "127.0.0.1", "localhost", "[::ffff:127.0.0.1]:2222"}) {
    EXPECT_TRUE(IsLocalAddress(address)) << address;
  }
  for (const char* address :
       {"0.0.0.0:2222", "[::]:2222", "::", "*:2222", "", ":2222", "192.168.0.1:2222",
        "128.0.0.1:2222", "ps0:2222", "localhost.example:2222", "127.0.0.1.example:2222",
        "127.1:2222", "2130706433:2222", "[::ffff:10.0.0.1]:2222", "[::1", "[::1%lo]:1"}) {
    EXPECT_FALSE(IsLocalAddress(address)) << address;
  }
}

TEST(TransportSecurityTest, ATaskThatListensOnAllAddressesHasTheHostOfTaskZero) {
  for (const char* wildcard : {"0.0.0.0", "[::]", "::", "[0::0]"}) {
    const std::string announced = absl::StrCat(wildcard, ":2223");
    EXPECT_EQ(AddressOfTask(announced, "ps0.example:2222"), "ps0.example:2223") << wildcard;
    EXPECT_EQ(AddressOfTask(announced, "[fd00::7]:2222"), "[fd00::7]:2223") << wildcard;
    EXPECT_EQ(AddressOfTask(announced, "127.0.0.1:9"), "127.0.0.1:2223") << wildcard;
    EXPECT_EQ(AddressOfTask(announced, "ps0"), "ps0:2223") << wildcard;
    EXPECT_EQ(AddressOfTask(announced, "[fd00::7]"), "[fd00::7]:2223") << wildcard;
    // Something forwards the socket; nothing is known about the task.
    EXPECT_EQ(AddressOfTask(announced, "unix:/ps"), announced);
  }
  for (const char* address : {"ps1:2223", "127.0.0.1:2223", "[::1]:2223", "unix:/tmp/ps.1", "0:1",
                              "unix:/0.0.0.0:1", "0.0.0.1:1", "", ":1"}) {
    EXPECT_EQ(AddressOfTask(address, "ps0:2222"), address);
  }
}

TEST(TransportSecurityTest, PlaintextIsLocalUnlessAllowedExplicitly) {
  TransportSecurity security;
  EXPECT_TRUE(CheckExposure(security, {}).ok());
  EXPECT_TRUE(CheckExposure(security, {"127.0.0.1:2222", "unix:/tmp/s"}).ok());
  const absl::Status refused = CheckExposure(security, {"127.0.0.1:2222", "ps1:2222"});
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* words : {"ps1:2222", "--tls_ca", "--insecure", "make_certs.sh"}) {
    EXPECT_TRUE(absl::StrContains(refused.message(), words)) << refused;
  }
  security.insecure = true;
  EXPECT_TRUE(CheckExposure(security, {"ps1:2222"}).ok());
  security.insecure = false;
  security.tls = TlsFiles{"ca", "cert", "key"};
  EXPECT_TRUE(CheckExposure(security, {"ps1:2222"}).ok());
}

TEST(TransportSecurityTest, TellsHostNamesFromAddresses) {
  for (const char* address : {"ps0.example:2222", "localhost:1", "a"}) {
    EXPECT_TRUE(HasHostName(address)) << address;
  }
  for (const char* address : {"127.0.0.1:2222", "10.0.0.1", "[::1]:2222", "unix:/run/ps.sock"}) {
    EXPECT_FALSE(HasHostName(address)) << address;
  }
}

}  // namespace
}  // namespace pushpull

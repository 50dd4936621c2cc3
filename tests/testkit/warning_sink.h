// WarningSink collects what is logged.
#ifndef PUSHPULL_TESTS_TESTKIT_WARNING_SINK_H_
#define PUSHPULL_TESTS_TESTKIT_WARNING_SINK_H_

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"

namespace pushpull {

// Collects warnings and lines of information during its lifetime.
class WarningSink final : public google::LogSink {
 public:
  WarningSink() { google::AddLogSink(this); }
  ~WarningSink() override { google::RemoveLogSink(this); }
  void send(google::LogSeverity severity, const char*, const char*, int,
            const google::LogMessageTime&, const char* message, size_t size) override {
    if (severity == google::GLOG_WARNING) warnings.emplace_back(message, size);
    if (severity == google::GLOG_INFO) infos.emplace_back(message, size);
  }
  int Count(absl::string_view text) const {
    int count = 0;
    for (const std::string& warning : warnings) count += absl::StrContains(warning, text) ? 1 : 0;
    return count;
  }
  std::vector<std::string> warnings;
  std::vector<std::string> infos;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_WARNING_SINK_H_

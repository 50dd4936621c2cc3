// WarningSink collects what is logged.
#ifndef PUSHPULL_TESTS_TESTKIT_WARNING_SINK_H_
#define PUSHPULL_TESTS_TESTKIT_WARNING_SINK_H_

#include <algorithm>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "glog/logging.h"

namespace pushpull {

// Collects the warnings and the lines of information that are logged during its lifetime, in their
// order. Thread-safe.
class WarningSink final : public google::LogSink {
 public:
  WarningSink() { google::AddLogSink(this); }
  ~WarningSink() override { google::RemoveLogSink(this); }
  void send(google::LogSeverity severity, const char*, const char*, int,
            const google::LogMessageTime&, const char* message, size_t size) override {
    absl::MutexLock lock(&mutex_);
    if (severity == google::GLOG_WARNING) warnings_.emplace_back(message, size);
    if (severity == google::GLOG_INFO) infos_.emplace_back(message, size);
  }
  std::vector<std::string> warnings() const {
    absl::MutexLock lock(&mutex_);
    return warnings_;
  }
  std::vector<std::string> infos() const {
    absl::MutexLock lock(&mutex_);
    return infos_;
  }
  // Returns the warnings that contain `text`.
  std::vector<std::string> With(absl::string_view text) const {
    std::vector<std::string> found = warnings();
    found.erase(
        std::remove_if(found.begin(), found.end(),
                       [text](const std::string& w) { return !absl::StrContains(w, text); }),
        found.end());
    return found;
  }
  int Count(absl::string_view text) const { return static_cast<int>(With(text).size()); }

 private:
  mutable absl::Mutex mutex_;
  std::vector<std::string> warnings_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> infos_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_WARNING_SINK_H_

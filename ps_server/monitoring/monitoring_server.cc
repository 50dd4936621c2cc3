#include "ps_server/monitoring/monitoring_server.h"

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/wire/transport_security.h"
#include "ps_server/monitoring/metrics_page.h"
#include "ps_server/monitoring/status_json.h"
#include "ps_server/monitoring/status_page.h"

namespace pushpull {
namespace {

constexpr absl::Duration kFreshFor = absl::Milliseconds(250);

// A page that is made again on request once it is older than kFreshFor.
class Cached {
 public:
  bool IsFresh(absl::Duration now) const { return text_ != nullptr && now - made_ < kFreshFor; }
  void Put(std::string text, absl::Duration now) {
    text_ = std::make_shared<const std::string>(std::move(text));
    made_ = now;
  }
  const std::shared_ptr<const std::string>& text() const { return text_; }

 private:
  std::shared_ptr<const std::string> text_;
  absl::Duration made_;
};

class MonitoringPages {
 public:
  explicit MonitoringPages(bool loopback_only)
      : loopback_only_(loopback_only),
        page_(std::make_shared<const std::string>(StatusPage())),
        policy_(StatusPagePolicy(*page_)) {}

  void Show(MonitoringIdentity identity, MonitoringSources sources) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    monitor_ = std::make_unique<Monitor>(std::move(identity), std::move(sources));
  }
  void Hide() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    monitor_.reset();
  }

  void Tick() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (monitor_ != nullptr) monitor_->Look();
  }

  HttpResponse Get(const HttpRequest& request) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const absl::Duration now = clock_.Now();
    HttpResponse response;
    response.headers = {{"Cache-Control", "no-store"},
                        {"X-Content-Type-Options", "nosniff"},
                        {"Referrer-Policy", "no-referrer"}};
    if (loopback_only_ && !request.host.empty() && !IsLocalAddress(request.host)) {
      response.code = 421;
      response.body = Text(
          "this server answers to 127.0.0.1 and localhost only; --metrics_host "
          "opens it to others\n");
    } else if (request.path == "/healthz") {
      response.body = Text("ok\n");
    } else if (request.path != "/" && request.path != "/status.json" &&
               request.path != "/metrics") {
      response.code = 404;
      response.body = Text("not found; there are / /status.json /metrics /healthz\n");
    } else if (monitor_ == nullptr) {
      response.code = 503;
      response.body =
          Text("this server starts or ends; its log and psctl status say what it waits for\n");
    } else if (request.path == "/") {
      response.content_type = "text/html; charset=utf-8";
      response.headers.emplace_back("Content-Security-Policy", policy_);
      response.body = page_;
    } else if (request.path == "/status.json") {
      response.content_type = "application/json";
      if (!json_.IsFresh(now)) json_.Put(StatusJson(monitor_->Snapshot()), now);
      response.body = json_.text();
    } else {
      response.content_type = kMetricsContentType;
      if (!metrics_.IsFresh(now)) metrics_.Put(MetricsPage(monitor_->Snapshot()), now);
      response.body = metrics_.text();
    }
    return response;
  }

 private:
  static std::shared_ptr<const std::string> Text(const char* text) {
    return std::make_shared<const std::string>(text);
  }

  const bool loopback_only_;
  const std::shared_ptr<const std::string> page_;
  const std::string policy_;
  const SteadyClock clock_;
  absl::Mutex mutex_;
  std::unique_ptr<Monitor> monitor_ ABSL_GUARDED_BY(mutex_);  // null: nothing is shown
  Cached json_ ABSL_GUARDED_BY(mutex_);
  Cached metrics_ ABSL_GUARDED_BY(mutex_);
};

class ShownPages final : public MonitoringServer::Shown {
 public:
  explicit ShownPages(std::shared_ptr<MonitoringPages> pages) : pages_(std::move(pages)) {}
  ~ShownPages() override { pages_->Hide(); }

 private:
  const std::shared_ptr<MonitoringPages> pages_;
};

class HttpMonitoringServer final : public MonitoringServer {
 public:
  HttpMonitoringServer(std::shared_ptr<MonitoringPages> pages, std::unique_ptr<HttpServer> http)
      : pages_(std::move(pages)), http_(std::move(http)) {}

  std::unique_ptr<Shown> Show(MonitoringIdentity identity, MonitoringSources sources) override {
    pages_->Show(std::move(identity), std::move(sources));
    return std::make_unique<ShownPages>(pages_);
  }
  int port() const override { return http_->port(); }

 private:
  const std::shared_ptr<MonitoringPages> pages_;
  const std::unique_ptr<HttpServer> http_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MonitoringServer>> MonitoringServer::Start(
    const HttpServerOptions& options) {
  auto pages = std::make_shared<MonitoringPages>(IsLocalAddress(options.host));
  HttpCallbacks callbacks;
  callbacks.get = [pages](const HttpRequest& request) { return pages->Get(request); };
  callbacks.tick = [pages] { pages->Tick(); };
  PP_ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> http,
                      StartHttpServer(options, std::move(callbacks)));
  return std::make_unique<HttpMonitoringServer>(std::move(pages), std::move(http));
}

}  // namespace pushpull

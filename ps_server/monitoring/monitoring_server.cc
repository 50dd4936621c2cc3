#include "ps_server/monitoring/monitoring_server.h"

#include <string>
#include <utility>

#include "common/base/clock.h"
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
  template <typename Make>
  std::shared_ptr<const std::string> Get(absl::Duration now, const Make& make) {
    if (text_ == nullptr || now - made_ >= kFreshFor) {
      text_ = std::make_shared<const std::string>(make());
      made_ = now;
    }
    return text_;
  }

 private:
  std::shared_ptr<const std::string> text_;
  absl::Duration made_;
};

// Used by the server's thread only.
class MonitoringPages {
 public:
  MonitoringPages(MonitoringIdentity identity, MonitoringSources sources, bool loopback_only)
      : watcher_(std::move(identity), std::move(sources)),
        loopback_only_(loopback_only),
        page_(std::make_shared<const std::string>(StatusPage())),
        policy_(StatusPagePolicy(*page_)) {}

  void Tick() { watcher_.Look(); }

  HttpResponse Get(const HttpRequest& request) {
    HttpResponse response;
    response.headers = {{"Cache-Control", "no-store"},
                        {"X-Content-Type-Options", "nosniff"},
                        {"Referrer-Policy", "no-referrer"}};
    if (loopback_only_ && !request.host.empty() && !IsLocalAddress(request.host)) {
      response.code = 421;
      response.body = Text(
          "this server answers to 127.0.0.1 and localhost only; --metrics_host "
          "opens it to others\n");
    } else if (request.path == "/") {
      response.content_type = "text/html; charset=utf-8";
      response.headers.emplace_back("Content-Security-Policy", policy_);
      response.body = page_;
    } else if (request.path == "/status.json") {
      response.content_type = "application/json";
      response.body = json_.Get(clock_.Now(), [this] { return StatusJson(watcher_.Snapshot()); });
    } else if (request.path == "/metrics") {
      response.content_type = kMetricsContentType;
      response.body =
          metrics_.Get(clock_.Now(), [this] { return MetricsPage(watcher_.Snapshot()); });
    } else if (request.path == "/healthz") {
      response.body = Text("ok\n");
    } else {
      response.code = 404;
      response.body = Text("not found; there are / /status.json /metrics /healthz\n");
    }
    return response;
  }

 private:
  static std::shared_ptr<const std::string> Text(const char* text) {
    return std::make_shared<const std::string>(text);
  }

  Monitor watcher_;
  const bool loopback_only_;
  const std::shared_ptr<const std::string> page_;
  const std::string policy_;
  const SteadyClock clock_;
  Cached json_;
  Cached metrics_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> StartMonitoringServer(const HttpServerOptions& options,
                                                                  MonitoringIdentity identity,
                                                                  MonitoringSources sources) {
  auto pages = std::make_shared<MonitoringPages>(std::move(identity), std::move(sources),
                                                 IsLocalAddress(options.host));
  HttpCallbacks callbacks;
  callbacks.get = [pages](const HttpRequest& request) { return pages->Get(request); };
  callbacks.tick = [pages] { pages->Tick(); };
  return StartHttpServer(options, std::move(callbacks));
}

}  // namespace pushpull

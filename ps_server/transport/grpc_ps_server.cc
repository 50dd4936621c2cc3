// Tested by tests/ps_server/transport/server_limits_test.cc.
// Tested by tests/ps_server/transport/grpc_ps_test.cc.
// Tested by tests/ps_server/transport/shared_chunks_test.cc.
#include "ps_server/transport/grpc_ps_server.h"

#include <grpcpp/health_check_service_interface.h>
#include <malloc.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "glog/logging.h"

#include "common/base/clock.h"
#include "common/base/log_limiter.h"
#include "common/base/status_macros.h"
#include "common/wire/grpc/grpc_runtime.h"
#include "common/wire/security/caller_rule.h"
#include "common/wire/security/peer_secret.h"
#include "common/wire/security/transport_credentials.h"
#include "protos/parameter_server.grpc.pb.h"
#include "ps_server/transport/call_watch.h"
#include "ps_server/transport/connection_table.h"
#include "ps_server/transport/listen.h"
#include "ps_server/transport/ps_reactors.h"

namespace pushpull {
namespace {

// Nests gRPC's generated classes, one per method, each of which makes the generated service pass
// the method to a callback function:
//   WithCallbackMethod_GetJob<WithCallbackMethod_GetStatus<...<ChunkMethods>>>
#define PUSHPULL_ROW(Name, ...) ps::ParameterServer::WithCallbackMethod_##Name <
#define PUSHPULL_END(...) >
using ChunkMethods =
    ps::ParameterServer::WithRawCallbackMethod_Push<ps::ParameterServer::WithRawCallbackMethod_Pull<
        ps::ParameterServer::WithCallbackMethod_OpenSharedMemory<ps::ParameterServer::Service>>>;
using AllMethods = PUSHPULL_UNARY_METHODS(PUSHPULL_ROW) ChunkMethods
    PUSHPULL_UNARY_METHODS(PUSHPULL_END);
#undef PUSHPULL_ROW
#undef PUSHPULL_END

// Returns the message without the fields, at any depth, that this build does not know. The server
// keeps some messages of a peer and shows them to others, and unknown fields have passed no check.
template <typename Request>
Request KnownFieldsOf(const Request& request) {
  Request known = request;
  known.DiscardUnknownFields();
  return known;
}

// Whether requests of the method may be as long as a message (ServerLimits::max_request_bytes).
bool MayBeLong(const PsMethodRow& row) {
  return row.method == PsMethod::kRegister || row.method == PsMethod::kDeclareVariables ||
         row.proof == PeerProof::kRequired;
}

class Service final : public AllMethods {
 public:
  // certificates: whether callers have presented a certificate, which limits their worker_ids.
  // secret: without certificates, proves orders of the coordinator; null means that all orders are
  // rejected.
  Service(PsHandler* handler, bool certificates, std::shared_ptr<const PeerSecret> secret,
          const ConnectionTable* connections, CallWatch* watch)
      : handler_(handler),
        certificates_(certificates),
        secret_(std::move(secret)),
        connections_(connections),
        watch_(watch) {}

  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;

#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof)                         \
  Unary* Name(Context* context, const ps::Request* request, ps::Reply* reply) override { \
    return Answer(context, RowOf(PsMethod::k##Name), &PsHandler::Name, *request, reply); \
  }
  PUSHPULL_UNARY_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW

  grpc::ServerReadReactor<grpc::ByteBuffer>* Push(Context* context,
                                                  grpc::ByteBuffer* reply) override {
    return StartPushReactor(handler_, RuleFor(*context), &services_, context, GuardsOf(*context),
                            reply);
  }
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pull(Context* context,
                                                   const grpc::ByteBuffer* request) override {
    return StartPullReactor(handler_, RuleFor(*context), &services_, context, GuardsOf(*context),
                            *request);
  }
  Unary* OpenSharedMemory(Context* context, const ps::OpenSharedMemoryRequest* request,
                          ps::OpenSharedMemoryReply* reply) override {
    using Reply = ps::OpenSharedMemoryReply;
    return Start(*context, RowOf(PsMethod::kOpenSharedMemory), *request, reply,
                 [&](const auto& known, PsHandler::Done<Reply> done) {
                   const absl::Status reachable = services_.exchanges.CheckHost(known);
                   if (!reachable.ok()) return done(reachable);
                   // The answer may come when the call, and with it `request`, is gone.
                   handler_->OpenSharedMemory(known, [this, known, done = std::move(done)](
                                                         absl::StatusOr<Reply> admitted) {
                     if (!admitted.ok()) return done(std::move(admitted));
                     const absl::Status opened = services_.exchanges.Open(known, &*admitted);
                     done(opened.ok() ? std::move(admitted) : opened);
                   });
                 });
  }

 private:
  template <typename Request, typename Reply>
  using Function = void (PsHandler::*)(const Request&, PsHandler::Done<Reply>);

  // Passes the request to the handler. Without certificates, a method that requires a proof is
  // refused to callers that have none. With certificates the access table admits only ps tasks to
  // these methods, so no proof is needed.
  template <typename Request, typename Reply>
  Unary* Answer(Context* context, const PsMethodRow& row, Function<Request, Reply> function,
                const Request& request, Reply* reply) {
    const bool proven = IsProven(*context, row, request);
    const auto call = [&](const Request& known, PsHandler::Done<Reply> done) {
      if (row.proof != PeerProof::kRequired || certificates_ || proven) {
        return (handler_->*function)(known, std::move(done));
      }
      const absl::Status refusal = absl::PermissionDeniedError(
          absl::StrCat(row.name,
                       " is only for the job\'s coordinator, and the caller has not proven that "
                       "it is the coordinator: give all ps tasks the same train_dir, the same "
                       "--peer_secret_file, or TLS"));
      if (const std::optional<std::string> note = refusals_.Admit(SteadyClock().Now())) {
        LOG(WARNING) << "refused a call: " << refusal.message() << *note;
      }
      done(refusal);
    };
    if (!proven) return Start(*context, row, request, reply, call);
    // The answer carries a proof that this is a task of the job.
    return Start(*context, row, request, reply, call,
                 [this, context, proof = secret_->ProveRequest(row.name, request)](
                     const grpc::Status& status, const Reply& sent) {
                   context->AddTrailingMetadata(kPeerProofKey,
                                                secret_->ProveAnswer(proof, status, sent));
                 });
  }

  template <typename Request>
  bool IsProven(const Context& context, const PsMethodRow& row, const Request& request) const {
    return row.proof != PeerProof::kNone && secret_ != nullptr &&
           SameProof(FindPeerProof(context.client_metadata()),
                     secret_->ProveRequest(row.name, request));
  }

  // Runs `call`, with the fields of the request that are known, if the request is not too long and
  // the caller may use its worker_id, and answers with an error if not. The message that `call`
  // gets is valid until it returns. A proof in the call has been compared before, because it covers
  // unknown fields too.
  template <typename Request, typename Reply, typename Call>
  Unary* Start(const Context& context, const PsMethodRow& row, const Request& request, Reply* reply,
               const Call& call, typename UnaryReactor<Reply>::ProveFn prove = nullptr) {
    CallGuards guards = GuardsOf(context);
    const size_t size_bytes = request.ByteSizeLong();
    guards.account->NoteReceived(size_bytes);
    absl::Status allowed = RuleFor(context).Check(request);
    if (allowed.ok() && !MayBeLong(row)) {
      allowed = CheckRequestBytes(size_bytes, guards.watch->limits().max_request_bytes);
    }
    auto* reactor = new UnaryReactor<Reply>(reply, std::move(guards), std::move(prove));
    if (allowed.ok()) {
      call(KnownFieldsOf(request), reactor->MakeDone());
    } else {
      reactor->MakeDone()(allowed);
    }
    return reactor;
  }

  CallerRule RuleFor(const Context& context) const {
    return certificates_ ? CallerRule::OfPeer(context) : CallerRule::Anybody();
  }

  CallGuards GuardsOf(const Context& context) const {
    return {watch_, connections_->Find(context.peer())};
  }

  PsHandler* const handler_;
  const bool certificates_;
  const std::shared_ptr<const PeerSecret> secret_;
  const ConnectionTable* const connections_;
  CallWatch* const watch_;
  PeerLogLimiter refusals_;
  ChunkServices services_;
};

class GrpcPsServerImpl final : public GrpcPsServer {
 public:
  GrpcPsServerImpl(PsHandler* handler, const TransportOptions& options)
      : connections_(options.limits, PrefaceOf(options.credentials.get()), &clock_),
        watch_(options.limits, &clock_),
        service_(handler, options.credentials != nullptr && options.credentials->encrypted(),
                 options.peer_secret, &connections_, &watch_) {}
  ~GrpcPsServerImpl() override { Stop(absl::ZeroDuration()); }

  absl::Status Start(const std::string& address, const TransportOptions& options) {
    // A chunk is received by one thread and freed by another. With one malloc arena per thread, the
    // arenas together would grow to the sum of the most that each ever held.
    mallopt(M_ARENA_MAX, 1);
    InitGrpcRuntime();  // before the builder, whose quota starts gRPC
    grpc::ServerBuilder builder;
    ConfigureServer(options, &builder);
    builder.RegisterService(&service_);
    PP_ASSIGN_OR_RETURN(listening_,
                        StartListening(address, options.credentials.get(), options.limits, &builder,
                                       &connections_, &watch_));
    return absl::OkStatus();
  }

  const std::string& address() const override { return listening_.address; }

  void SetServing(bool serving) override {
    listening_.server->GetHealthCheckService()->SetServingStatus(kHealthServiceName, serving);
  }

  void Stop(absl::Duration grace) override {
    if (listening_.server == nullptr) return;
    absl::MutexLock lock(&stop_mutex_);
    if (stopped_) return;
    stopped_ = true;
    listening_.gate->Stop();
    listening_.server->GetHealthCheckService()->Shutdown();
    const gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                     gpr_time_from_nanos(absl::ToInt64Nanoseconds(std::min(grace, absl::Hours(24))),
                                         GPR_TIMESPAN));
    listening_.server->Shutdown(deadline);
    listening_.server->Wait();
  }

 private:
  SteadyClock clock_;
  ConnectionTable connections_;
  CallWatch watch_;
  Service service_;
  ListeningServer listening_;  // after the service it serves
  absl::Mutex stop_mutex_;
  bool stopped_ ABSL_GUARDED_BY(stop_mutex_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcPsServer>> StartGrpcPsServer(const std::string& address,
                                                                PsHandler* handler,
                                                                const TransportOptions& options) {
  auto server = std::make_unique<GrpcPsServerImpl>(handler, options);
  PP_RETURN_IF_ERROR(server->Start(address, options));
  return server;
}

}  // namespace pushpull

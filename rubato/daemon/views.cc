#include "rubato/daemon/views.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>

#include "rubato/base/text.h"
#include "rubato/daemon/job_model.h"
#include "rubato/daemon/phrases.h"
#include "rubato/jobfile/job_fields.h"

namespace rubato::daemon {
namespace {

Json plan_json(const DaemonState& state, const std::vector<GpuStep>& plan) {
  Json list = Json::array();
  for (const GpuStep& step : plan)
    list.push_back({{"from", iso_of(state, step.from)}, {"gpus", step.gpus}});
  return list;
}

Json limits_json(const GpuLimits& limits) {
  return {{"min", limits.min}, {"max", limits.max}, {"allowed", limits.allowed}};
}

// The program has done the work that its owner declared, and still runs. So its end is unknown.
bool beyond_its_work(const JobRecord& job, const JobProgress& progress) {
  return job.file.work && done_by(job, progress) >= job.work;
}

// One phrase: why the job does not run, or what it does.
std::string reason_of(const DaemonState& state, const JobRecord& job, const JobView* view,
                      JobState job_state) {
  if (job.ending) return job.ending->why;
  if (job_state == JobState::profiling)
    return fmt::format("job {} measures its speed", job.measured_by->value());
  if (view == nullptr) return "";
  if (view->leaving)
    return job.leaves_as && job.leaves_as->how == Ending::failed ? "gave up; releasing its GPUs"
                                                                 : "cancelled; releasing its GPUs";
  if (const auto until = job.paused_until())
    return fmt::format("starts again at {} after {}", clock_at(state, *until), setback_text(job));
  if (std::string unknown = unknown_nodes(state, view->held); !unknown.empty()) return unknown;
  if (job.trial && job.trial->waits)
    return fmt::format("waits at the end of stage {} for other trials", job.trial->stages.size());
  if (view->on_hold) return view->held.empty() ? "on hold" : "on hold; releasing its GPUs";
  if (view->phase == Phase::starting) return "starting";
  if (view->phase == Phase::resizing) return "changing its GPUs";
  if (view->phase == Phase::stopping) return "paused by the policy; releasing its GPUs";
  if (job_state != JobState::pending)
    return job.plain ? "one process: its program does not use Rubato's library" : "";
  if (!view->target.empty()) return "waits until other jobs release its GPUs";
  const auto& last = state.last_decision();
  if (!last || last->at < view->submitted) return "waits for the next decision";
  if (!last->refused.empty()) return "the last decision could not be carried out";
  if (const auto node = node_in_trouble(state))
    return fmt::format("waits for GPUs; {}", node_text(state, *node));
  return view->has_run() ? "paused by the policy" : "waits for GPUs";
}

Json progress_json(const JobRecord& job, const JobView* view, const JobProgress& progress,
                   Time now) {
  Json done = nullptr;
  if (job.ending && job.ending->how == Ending::completed) {
    done = 1.0;
  } else if (job.file.work) {
    const double told = done_by(job, progress);
    const Work left = view != nullptr ? view->progress.left(now) : job.work;
    const double part = told > 0 ? told / job.work : (job.work - left) / job.work;
    done = std::clamp(part, 0.0, 1.0);
  }
  Json metrics = Json::object();
  for (const auto& [name, value] : progress.metrics) metrics[name] = number_or_null(value);
  return {{"done", done},
          {"step", progress.step},
          {"samples", progress.samples},
          {"epoch", progress.epoch},
          {"loss", number_or_null(progress.loss)},
          {"rate", progress.rate},
          {"learning_rate", number_or_null(progress.learning_rate)},
          {"skew", number_or_null(progress.skew)},
          {"metrics", std::move(metrics)}};
}

Json trial_json(const JobRecord& job) {
  Json stages = Json::array();
  for (const StageMetric& metric : job.trial->stages) stages.push_back(number_or_null(metric));
  return {
      {"number", job.trial->number}, {"stages", std::move(stages)}, {"waits", job.trial->waits}};
}

// The end if the rest of the work went as slowly, or as fast, as a tenth of the job's reports on
// its present number of GPUs.
Json range_json(const DaemonState& state, const JobRecord& job, const JobView& view, Time eta) {
  const JobPast* past = state.pasts().of(job.id);
  const auto spread = past != nullptr ? spread_of(*past, view.held.gpus()) : std::nullopt;
  if (!spread) return nullptr;
  const Time now = state.time();
  const double left = seconds(std::max(Duration(0), eta - now));
  const Time earliest = now + from_seconds(left / spread->fast);
  const Time latest = now + from_seconds(left / spread->slow);
  return {{"earliest", iso_of(state, earliest)}, {"latest", iso_of(state, latest)}};
}

}  // namespace

JobId measured_job(const DaemonState& state, JobId id) {
  const JobRecord* job = state.job(id);
  return job != nullptr && job->measures_for ? *job->measures_for : id;
}

namespace {

// What its owner should know of a job that runs, but not as usual.
Json note_on(const JobRecord& job, const JobStatus* status) {
  if (job.plain) return fmt::format("{}; {}", kRunsAsOneProcess, kToUseMoreGpus);
  if (status == nullptr || !status->guest_share) return nullptr;
  if (*status->guest_share == 0) return "a guest of another job; it stands still for it now";
  return fmt::format("a guest of another job; it computes {:.0f}% of the time now",
                     *status->guest_share * 100);
}

}  // namespace

JobState state_of(const DaemonState& state, const JobRecord& job) {
  if (job.ending) {
    switch (job.ending->how) {
      case Ending::completed:
        return JobState::completed;
      case Ending::failed:
        return JobState::failed;
      case Ending::cancelled:
        return JobState::cancelled;
      case Ending::refused:
        return JobState::refused;
    }
  }
  if (job.measured_by) return JobState::profiling;
  const JobView* view = state.view(job.id);
  if (view == nullptr) return JobState::pending;
  if (view->leaving || view->phase == Phase::stopping) return JobState::stopping;
  if (job.paused_until()) return JobState::pending;
  if (view->on_hold) return view->held.empty() ? JobState::held : JobState::stopping;
  switch (view->phase) {
    case Phase::pending:
      return JobState::pending;
    case Phase::starting:
    case Phase::running:
      return JobState::running;
    case Phase::resizing:
      return JobState::resizing;
    case Phase::stopping:
      return JobState::stopping;
  }
  return JobState::pending;
}

Json show_job(const ViewContext& context, const JobRecord& job) {
  const DaemonState& state = context.state;
  const JobView* view = job.gone() ? nullptr : state.view(job.id);
  const JobStatus* status = job.gone() ? nullptr : context.status(job.id);
  const JobProgress& progress = status != nullptr ? status->progress : job.progress;
  const JobState job_state = state_of(state, job);
  const Time now = state.time();
  const Allocation held = view != nullptr ? view->held : Allocation();
  Json json = {{"id", job.id.value()},
               {"name", job.name},
               {"user", job.user},
               {"state", std::string(to_text(job_state))},
               {"reason", reason_of(state, job, view, job_state)},
               {"note", note_on(job, status)},
               {"gpus", held.gpus()},
               {"slots", slots_of(held)},
               {"limits", limits_json(limits_now(job, state))},
               {"submitted", iso(job.submitted)},
               {"started", iso(job.started)},
               {"ended", iso(job.ended)},
               {"deadline", iso(job.deadline)}};
  std::optional<Time> eta;
  json["eta_range"] = nullptr;
  if (view != nullptr && !beyond_its_work(job, progress)) {
    eta = expected_end(job, *view, now);
    if (eta) json["eta_range"] = range_json(state, job, *view, *eta);
    if (!eta && job.promise && job.honoured) eta = job.promise->finish;
  }
  // A job that did not complete was not in time, even if it ended early.
  const bool in_vain = job.ending && job.ending->how != Ending::completed;
  const auto end = job.ended ? job.ended : wall(state, eta);
  json["slack_seconds"] = job.deadline && end && !in_vain
                              ? Json(seconds(Duration{*job.deadline - *end}))
                              : Json(nullptr);
  json["promised"] = iso(promised_by(state, job));
  json["honoured"] = job.promise && !job.gone() ? Json(job.honoured) : Json(nullptr);
  json["plan"] = job.promise && job.honoured && !job.gone() ? plan_json(state, job.promise->plan)
                                                            : Json::array();
  json["progress"] = progress_json(job, view, progress, now);
  json["eta"] = iso_of(state, eta);
  json["gpu_seconds"] = (view != nullptr ? view->attained(now) : job.attained).gpu_seconds();
  json["failures"] =
      std::max({job.failures, job.worker_failures, status != nullptr ? status->failures : 0});
  json["resizes"] = job.resizes;
  // A program that does not know Rubato is restarted by every resize.
  json["restarts"] =
      (view != nullptr ? view->restarts : job.restarts) + (job.file.elastic ? 0 : job.resizes);
  json["last_pause_seconds"] = job.last_pause ? Json(*job.last_pause) : Json(nullptr);
  json["guest_share"] =
      status != nullptr && status->guest_share ? Json(*status->guest_share) : Json(nullptr);
  json["batch"] = progress.batch > 0 ? Json(progress.batch) : Json(nullptr);
  for (const auto& field : jobfile::job_fields()) {
    if (field.shown) json[std::string(field.name)] = field.write(job.file);
  }
  json["trial"] = job.trial ? trial_json(job) : Json(nullptr);
  json["exit_code"] = job.ending && job.ending->code ? Json(*job.ending->code) : Json(nullptr);
  json["command"] = job.file.command;
  json["command_cut"] = job.text_bytes.has_value();
  const auto outlook = context.outlooks.find(job.id);
  json["position"] =
      outlook != context.outlooks.end() ? Json(outlook->second.position) : Json(nullptr);
  json["estimated_start"] =
      outlook != context.outlooks.end() ? iso_of(state, outlook->second.start) : Json(nullptr);
  return json;
}

// --- verdicts ---

Verdict promised(const DaemonState& state, const JobRecord& job, const Promise& promise) {
  Verdict verdict;
  verdict.admitted = true;
  verdict.finish = promise.finish;
  const Time by = job.deadline ? state.loop_time(*job.deadline) : promise.finish;
  verdict.text =
      fmt::format("admitted, will finish by {}{}", clock_at(state, by), plan_text(promise.plan));
  return verdict;
}

Verdict refused(const DaemonState& state, const std::string& why, std::optional<Time> earliest) {
  Verdict verdict;
  verdict.admitted = false;
  verdict.earliest = earliest;
  verdict.text =
      earliest ? fmt::format("refused, earliest feasible {}: {}", clock_at(state, *earliest), why)
               : fmt::format("refused: {}", why);
  return verdict;
}

Verdict verdict_on(const ViewContext& context, const JobRecord& job) {
  const DaemonState& state = context.state;
  if (job.ending && job.ending->how == Ending::refused)
    return refused(state, job.ending->why, job.ending->earliest);
  Verdict verdict;
  if (job.measured_by) {
    verdict.by = job.verdict_by;
    verdict.text =
        fmt::format("profiling, verdict by {}",
                    job.verdict_by ? clock_at(state, *job.verdict_by) : std::string("soon"));
    return verdict;
  }
  if (job.promise && job.honoured) return promised(state, job, *job.promise);
  const JobView* view = state.view(job.id);
  const auto& last = state.last_decision();
  const bool judged = view != nullptr && last && last->at >= view->submitted;
  const bool by_deadline = state.policy().admits() && job.deadline;
  if (by_deadline && !judged) {
    verdict.text = "accepted; the verdict comes with the next decision";
    return verdict;
  }
  // A policy may admit a job without saying when the job will run.
  if (by_deadline) verdict.admitted = true;
  const std::string admitted = by_deadline ? "admitted, " : "";
  if (view != nullptr && !view->target.empty()) {
    verdict.start = state.time();
    verdict.text =
        admitted +
        (view->held.empty() ? "starts as soon as other jobs have released its GPUs" : "starts now");
    return verdict;
  }
  const auto outlook = context.outlooks.find(job.id);
  if (outlook == context.outlooks.end()) {
    verdict.text = by_deadline ? "admitted" : "accepted";
    return verdict;
  }
  verdict.position = outlook->second.position;
  verdict.start = outlook->second.start;
  verdict.text =
      fmt::format("{}position {}, estimated start {}", admitted, *verdict.position,
                  verdict.start ? clock_at(state, *verdict.start) : std::string("unknown"));
  return verdict;
}

Json to_json(const DaemonState& state, const Verdict& verdict) {
  return {{"admitted", verdict.admitted ? Json(*verdict.admitted) : Json(nullptr)},
          {"text", verdict.text},
          {"finish", iso_of(state, verdict.finish)},
          {"earliest", iso_of(state, verdict.earliest)},
          {"position", verdict.position ? Json(*verdict.position) : Json(nullptr)},
          {"estimated_start", iso_of(state, verdict.start)},
          {"by", iso_of(state, verdict.by)}};
}

// --- the cluster, the policy, history, users ---

namespace {

// Who has which GPUs as of the last decision; nullptr if that is not known.
const CellUse* cell_use(const DaemonState& state) {
  return state.last_decision() ? state.last_decision()->cell_use.get() : nullptr;
}

using SeesTenant = std::function<bool(const std::string&)>;

// The tenants with cells on a node, and how many GPUs they have there.
Json cells_on(const DaemonState& state, NodeId node, const SeesTenant& visible) {
  Json cells = Json::array();
  const CellUse* use = cell_use(state);
  if (use == nullptr || state.quotas().empty()) return cells;
  for (const CellUse::Tenant& tenant : use->tenants) {
    if (!visible(tenant.name)) continue;
    for (const Slice& slice : tenant.gpus) {
      if (slice.node == node) cells.push_back({{"tenant", tenant.name}, {"gpus", slice.gpus()}});
    }
  }
  return cells;
}

// The numbers of the GPUs in the mask.
Json numbers_of(std::uint64_t mask) {
  Json gpus = Json::array();
  for (int gpu = 0; gpu < kMaxGpusPerNode; ++gpu) {
    if ((mask >> static_cast<unsigned>(gpu) & 1U) != 0) gpus.push_back(gpu);
  }
  return gpus;
}

Json show_tenant(const DaemonState& state, const TenantCells& quota) {
  Json places = Json::array();
  int used = 0, borrowed = 0, lent = 0;
  const CellUse* use = cell_use(state);
  for (std::size_t t = 0; use != nullptr && t < use->tenants.size(); ++t) {
    if (use->tenants[t].name != quota.tenant) continue;
    for (const Slice& slice : use->tenants[t].gpus)
      places.push_back(
          {{"node", state.now().cluster.name(slice.node)}, {"gpus", numbers_of(slice.mask)}});
    for (const CellUse::Job& job : use->jobs) {
      const int here = use->by_owner(job.inside)[t] + use->by_owner(job.borrowed)[t];
      const bool own = job.tenant == t;
      used += own ? here : 0;
      borrowed += own ? job.inside.gpus() + job.borrowed.gpus() - here : 0;
      lent += own ? 0 : here;
    }
  }
  return {{"tenant", quota.tenant},      {"cells", text_of(quota.cells, state.now().cluster)},
          {"gpus", quota.gpus()},        {"members", quota.members},
          {"places", std::move(places)}, {"used", used},
          {"borrowed", borrowed},        {"lent", lent}};
}

}  // namespace

Json show_nodes(const DaemonState& state, const std::function<bool(JobId)>& visible,
                const SeesTenant& tenant_visible) {
  const Cluster& cluster = state.now().cluster;
  std::vector<Json> used(cluster.nodes().size(), Json::array());
  for (const JobView& view : state.now().jobs) {
    const JobId job = measured_job(state, view.id);
    int worker = 0;  // ranks follow the order of the slots
    for (const Slice& slice : view.held.slices()) {
      for (int gpu = 0; gpu < kMaxGpusPerNode; ++gpu) {
        if ((slice.mask >> static_cast<unsigned>(gpu) & 1U) == 0) continue;
        const bool shown = visible(view.id);
        used[slice.node.index()].push_back({{"gpu", gpu},
                                            {"job", shown ? Json(job.value()) : Json(nullptr)},
                                            {"worker", shown ? Json(worker) : Json(nullptr)},
                                            {"measuring", shown && job != view.id}});
        ++worker;
      }
    }
  }
  Json nodes = Json::array();
  for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
    const NodeId id(static_cast<NodeId::rep>(i));
    const Node& node = cluster.node(id);
    nodes.push_back({{"id", i},
                     {"name", cluster.name(id)},
                     {"state", std::string(to_text(node.state))},
                     {"gpus", node.gpus},
                     {"type", cluster.type_name(node.type)},
                     {"labels", cluster.labels(id)},
                     {"used", std::move(used[i])},
                     {"others", numbers_of(node.reserved)},
                     {"others_reason", state.reserved_why(id)},
                     {"since", iso(state.node_since(id))},
                     {"reason", state.node_why(id)}});
    if (Json cells = cells_on(state, id, tenant_visible); !cells.empty())
      nodes.back()["cells"] = std::move(cells);
  }
  return {{"nodes", std::move(nodes)}};
}

Json show_cells(const DaemonState& state) {
  Json tenants = Json::array();
  for (const TenantCells& quota : state.quotas().all())
    tenants.push_back(show_tenant(state, quota));
  return {{"tenants", std::move(tenants)}};
}

Json show_cells(const DaemonState& state, const std::string& tenant) {
  const TenantCells* quota = state.quotas().find(tenant);
  return quota != nullptr ? show_tenant(state, *quota) : Json{{"tenant", tenant}};
}

std::string machines_text(const Cluster& cluster) {
  std::string text;
  for (const NodeGroup& group : cluster.groups()) {
    const std::string& type = cluster.type_name(group.type);
    text += fmt::format("{}{}x{}", text.empty() ? "" : ",", group.nodes, group.gpus_per_node);
    if (cluster.types() > 1 || type != "gpu") text += ":" + type;
  }
  return text;
}

Json show_policy(const DaemonState& state, const std::function<bool(JobId)>& visible) {
  Json promises = Json::array();
  for (const JobView& view : state.now().jobs) {
    const JobRecord* job = state.job(view.id);
    if (job == nullptr || !job->promise || !visible(view.id)) continue;
    promises.push_back({{"job", view.id.value()},
                        {"promised", iso(promised_by(state, *job))},
                        {"finish", iso_of(state, job->promise->finish)},
                        {"honoured", job->honoured}});
  }
  return {{"policy", state.policy().text}, {"promises", std::move(promises)}};
}

Json show_line(const HistoryLine& line) {
  return {{"number", line.number.value()},
          {"at", iso(line.at)},
          {"type", line.type},
          {"job", line.job ? Json(line.job->value()) : Json(nullptr)},
          {"text", line.text}};
}

Json show_user(const UserRecord& user) {
  Json tokens = Json::array();
  for (const std::string& token : user.tokens) tokens.push_back(token.substr(0, kTokenNameDigits));
  Json pages = Json::array();
  for (const PageToken& page : user.pages)
    pages.push_back(
        {{"token", page.token.substr(0, kTokenNameDigits)}, {"until", iso(page.until)}});
  return {{"name", user.name},
          {"role", user.admin ? "admin" : "user"},
          {"most_weight", user.most_weight},
          {"guaranteed", user.guaranteed > 0 ? Json(user.guaranteed) : Json(nullptr)},
          {"tokens", std::move(tokens)},
          {"pages", std::move(pages)}};
}

}  // namespace rubato::daemon

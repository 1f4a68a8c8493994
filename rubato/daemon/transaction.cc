#include "rubato/daemon/transaction.h"

#include <utility>

namespace rubato::daemon {
namespace {

// Returns the value, or throws CannotFold.
template <class T>
T must(Result<T> result) {
  if (!result) throw CannotFold(result.error().message);
  return std::move(*result);
}

}  // namespace

void Transaction::put(std::string type, int version, std::string body) {
  JournalRow row{now_, std::move(type), version, std::move(body)};
  if (auto ok = state_.apply(next_row(), row); !ok) throw CannotFold(ok.error().message);
  rows_.push_back(std::move(row));
}

void Transaction::put(const char* type, const Json& body) {
  put(type, 1, must(canonical_json(body)));
}

void Transaction::post(const Event& event) {
  auto coded = must(encode(event));
  if (const JobId job = job_of(event); job != JobId()) touch(job);
  put(std::move(coded.type), coded.version, std::move(coded.body));
}

// The row has only values that differ from those of a new job.
void Transaction::put_job(const JobRecord& job) {
  static const Json plain = write_record(JobRecord()).value();
  const Json whole = must(write_record(job));
  Json body = Json::object();
  for (const auto& [name, value] : whole.items()) {
    const bool needed = name == "file" || name == "id" || name == "name" || name == "user";
    if (name == "submitted" || (!needed && plain.contains(name) && plain[name] == value)) continue;
    body[name] = value;
  }
  touch(job.id);
  if (!job.measures_for) ++submitted_;
  put("job", body);
}

void Transaction::put_user(const UserRecord& user) {
  put("user", write_record(user).value());
  users_changed_ = true;
}

void Transaction::remove_user(const std::string& name) {
  put("user_removed", {{"name", name}});
  users_changed_ = true;
}

void Transaction::put_cells(const TenantCells& quota) {
  put("cells", write_cells(quota, state_.now().cluster));
  post(Wake{});
  decide_now();
}

void Transaction::put_policy(const PolicyInForce& policy) {
  put("policy", {{"measuring", policy.measuring.count()}, {"policy", policy.text}});
}

void Transaction::end_job(JobId id, const JobEnding& ending) {
  const auto run = state_.job(id)->measured_by;
  touch(id);
  put("ended", {{"ending", write_record(ending).value()}, {"job", id.value()}});
  if (state_.view(id) != nullptr) post(Cancelled{id});
  if (!run) return;
  if (const JobRecord* other = state_.job(*run);
      other != nullptr && !other->gone() && !other->leaves_as)
    end_job(*run,
            {Ending::cancelled, "nobody waits for its measurements", std::nullopt, std::nullopt});
}

Question Transaction::ask() { return state_.ask(now_); }

void Transaction::decide_later() { put("asked", Json::object()); }

void Transaction::drop_question() {
  put("unanswered", Json::object());
  post(Wake{});
}

void Transaction::answer(Question question) {
  for (JournalRow& row : must(state_.answer(std::move(question), now_, next_row())))
    rows_.push_back(std::move(row));
  const auto& last = state_.last_decision();
  if (!last || last->at != now_) return;
  for (const Reject& reject : last->decision.reject) touch(reject.job);
  for (const Promise& promise : last->decision.promise) touch(promise.job);
}

void Transaction::put_commands() {
  auto row = must(state_.row_of_commands(now_));
  if (!row) return;
  commands_ = state_.issued();
  for (const Command& command : commands_) {
    const JobId id = std::visit([](const auto& c) { return c.job; }, command);
    touch(id);
    const JobRecord* job = state_.job(id);
    resizes_ += job != nullptr && moves(command, *job) ? 1 : 0;
  }
  put(std::move(row->type), row->version, std::move(row->body));
}

}  // namespace rubato::daemon

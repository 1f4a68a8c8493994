#include "rubato/elastic/publishing.h"

namespace rubato::elastic {

void Publishing::completed(const Session::Completed& completed, member::Uid self) {
  const member::Uid leader = completed.record.leader();
  if (leader == self) publish_all();
  const auto word = completed.words.find(leader);
  if (word == completed.words.end()) return;
  while (!unpublished_.empty() && unpublished_.front().at("step") <= word->second.published) {
    unpublished_.pop_front();
  }
}

void Publishing::publish_all() {
  for (const Json& report : unpublished_) {
    publish_(report);
    published_ = report.at("step").get<std::int64_t>();
  }
  unpublished_.clear();
}

}  // namespace rubato::elastic

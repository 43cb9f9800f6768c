// SPDX-License-Identifier: Apache-2.0
#include "events.h"

#include <mutex>
#include <unordered_set>

#include "call.h"
#include "executor.h"
#include "handles.h"
#include "quiet.h"

struct rondo::device::EventObject {
  ContextHandle context = nullptr;
  std::shared_ptr<fake::Record> latest;  // null: never recorded
};

namespace fake {
namespace {

struct Events {
  std::mutex mutex;  // guards the events too
  std::unordered_set<EventHandle> all;
};
Events& events() {
  static Events& all = *new Events;
  return all;
}

// False where there is no such event.
bool latest_record(EventHandle event, std::shared_ptr<Record>* record) {
  const std::lock_guard lock(events().mutex);
  if (!events().all.contains(event)) return false;
  *record = event->latest;
  return true;
}

}  // namespace

Status create_event(EventHandle* event, ContextHandle context) {
  if (event == nullptr) return invalid_value;
  *event = new rondo::device::EventObject{context, nullptr};
  const std::lock_guard lock(events().mutex);
  events().all.insert(*event);
  count_handle(rondo_fake_events, 1);
  return 0;
}

Status destroy_event(EventHandle event) {
  const std::lock_guard lock(events().mutex);
  if (events().all.erase(event) == 0) return invalid_handle;
  delete event;  // work that waits for it has the record
  count_handle(rondo_fake_events, -1);
  return 0;
}

Status record_event(EventHandle event, StreamHandle stream) {
  auto record = std::make_shared<Record>(stream->context);
  std::shared_ptr<Record> before;
  if (!latest_record(event, &before) || event->context != stream->context) return invalid_handle;
  if (const Status status = executor().enqueue(stream, std::make_unique<RecordWork>(record));
      status != 0)
    return status;
  const std::lock_guard lock(events().mutex);
  if (events().all.contains(event)) event->latest = std::move(record);
  return 0;
}

Status query_event(EventHandle event) {
  std::shared_ptr<Record> record;
  if (!latest_record(event, &record)) return invalid_handle;
  if (record == nullptr) return 0;
  Status status = 0;
  {
    const Seen seen;
    status = record->status.load(std::memory_order_acquire);
  }
  // Work that was dropped stored nothing for TSan. What came before the error is seen with it.
  if (status != rondo::device::success && status != rondo::device::not_ready)
    (void)sticky_error(record->context);
  return status;
}

Status wait_for_event(StreamHandle stream, EventHandle event) {
  std::shared_ptr<Record> record;
  if (!latest_record(event, &record)) return invalid_handle;
  if (record == nullptr) return 0;
  return executor().enqueue(stream, std::make_unique<WaitWork>(std::move(record)));
}

}  // namespace fake

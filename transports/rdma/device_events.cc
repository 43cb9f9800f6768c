// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/device_events.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include <rondo/error.h>

#include "base/text.h"
#include "transports/rdma/failures.h"

namespace rondo::rdma {

DeviceEvents::Listener::Listener(DeviceEvents& events) : events_(events) {
  if (!inbox_.bell)
    throw Error(Errc::system, fmt::format("eventfd: {}", base::describe_errno(errno)));
  const base::Locked lock(events_.mutex_);
  events_.inboxes_.push_back(&inbox_);
}

DeviceEvents::Listener::~Listener() {
  if (generation_ != base::process_generation()) return;
  const base::Locked lock(events_.mutex_);
  std::erase(events_.inboxes_, &inbox_);
}

std::vector<DeviceEvent> DeviceEvents::Listener::take() {
  inbox_.bell.clear();
  const base::Locked lock(events_.mutex_);
  return std::exchange(inbox_.events, {});
}

int DeviceEvents::descriptor_of(std::size_t device) const {
  const int events = devices_->all()[device]->context()->async_fd;
  const int flags = ::fcntl(events, F_GETFL);
  if (flags < 0 || ::fcntl(events, F_SETFL, flags | O_NONBLOCK) != 0)
    throw Error(Errc::system, fmt::format("fcntl: {}", base::describe_errno(errno)));
  return events;
}

void DeviceEvents::read(std::size_t device) {
  const Device& one = *devices_->all()[device];
  ibv_async_event event{};
  while (one.verbs().get_async_event(one.context(), &event) == 0) {
    DeviceEvent told{device, 0, 0, describe_event(event.event_type)};
    if (event.event_type == IBV_EVENT_PORT_ERR)
      told.port = static_cast<std::uint8_t>(event.element.port_num);
    if (event.event_type == IBV_EVENT_QP_FATAL || event.event_type == IBV_EVENT_QP_REQ_ERR ||
        event.event_type == IBV_EVENT_QP_ACCESS_ERR)
      told.queue_pair = event.element.qp->qp_num;
    if (!told.what.empty()) pass_on(told);
    // ibv_destroy_qp waits for this call. So no new queue pair gets the number before the listeners
    // have the event.
    one.verbs().ack_async_event(&event);
  }
}

void DeviceEvents::pass_on(const DeviceEvent& event) {
  const base::Locked lock(mutex_);
  for (Inbox* const inbox : inboxes_) {
    inbox->events.push_back(event);
    inbox->bell.set();
  }
}

}  // namespace rondo::rdma

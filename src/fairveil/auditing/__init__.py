"""Fresh attackers, tasks and certificates. They see released rows, never the encoder that made them."""

from fairveil.auditing.audit import audit
from fairveil.auditing.certificate import Certificate, certify
from fairveil.auditing.probes import Probe, probe
from fairveil.auditing.result import AuditResult

__all__ = ["AuditResult", "Certificate", "Probe", "audit", "certify", "probe"]

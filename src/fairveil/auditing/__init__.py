"""Attackers, downstream tasks and certificates. They use released rows only, never the encoder."""

from fairveil.auditing.audit import audit
from fairveil.auditing.certificate import Certificate, certify
from fairveil.auditing.probes import Probe, probe
from fairveil.auditing.result import AuditResult

__all__ = ["AuditResult", "Certificate", "Probe", "audit", "certify", "probe"]

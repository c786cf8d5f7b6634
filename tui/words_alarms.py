"""Alarms by their code, and the parts of the box. In English an alarm is told as the box told it,
so only other languages have texts here; `{}` are the alarm's arguments in order, `{screen}` is
where to look. A text that ends in `.bare` is for an alarm some of whose arguments are empty."""

_PARTS_EN = {
    "part.gpu": "gpu",
    "part.board": "board",
    "part.keys": "keys",
    "part.ledger": "ledger",
    "part.tls": "tls",
    "part.engine": "engine",
    "part.forecaster": "forecaster",
    "part.forecast": "forecast",
    "part.control": "control",
}

EN = _PARTS_EN

ZH = {
    "part.gpu": "GPU",
    "part.board": "控制板",
    "part.keys": "密钥",
    "part.ledger": "账本",
    "part.tls": "TLS",
    "part.engine": "引擎",
    "part.forecaster": "预测器",
    "part.forecast": "预测",
    "part.control": "控制环",
    "alarm.many": "10 min 内同类告警 {} 条，最近一条：{}",
    "alarm.engine_down": "引擎停机：{}；{} s 后重启。按 7 查看，R 立即重启。",
    "alarm.engine_failing": "引擎反复失败：5 min 内重启 {} 次（满 {} 次即放弃）：{}。按 7 看日志。",
    "alarm.engine_stuck": "引擎卡住：已 {} s 无进展，满 {} s 将被终止。按 7 再按 R 立即重启。",
    "alarm.chain_broken": "审计链断裂，第 {} 行：账本被绕过本机修改。按 5 查看，v 验证。",
    "alarm.chain_broken.bare": "审计链断裂：账本被绕过本机修改。按 5 查看，v 验证。",
    "alarm.ledger_failing": "账本无法写入，已停止服务：{}。按 5 查看。",
    "alarm.disk_full": "磁盘已满：{1} 只剩 {0} MB，已停止服务。请腾出空间。",
    "alarm.disk_low": "磁盘空间不足：{2} 剩 {0} %，{1} GB。请腾出空间，或导出：按 5 再按 w。",
    "alarm.overload": "过载：{0} / {1} 个请求在排队，每分钟拒绝 {4} 个，{2} 占 {3} %。"
    "按 2 查看，T 限速。",
    "alarm.overload.bare": "过载：{0} / {1} 个请求在排队，每分钟拒绝 {4} 个。按 2 查看，T 限速。",
    "alarm.tls_expires": "TLS 证书 {} 天后到期，届时客户端将拒绝连接。按 9 查看。",
    "alarm.key_expires": "密钥 {} 将在 {} 天后到期：请为其应用新建一个，按 4 再按 N。",
    "alarm.export_overdue": "导出逾期：上次导出已过 {} 天。按 5 再按 w。",
    "alarm.export_overdue.bare": "从未导出：账本只在这块磁盘上。请运行 steelyard audit export。",
    "alarm.too_hot": "温度过高：{} 为 {} C，其上限为 {} C。请检查风扇和散热。按 6 查看。",
    "alarm.ticks_overrun": "节拍超时：{} % 迟到。空出一个核心或调低 engine.threads。按 3 查看。",
    "alarm.gpu_lost": "{} 未使用：{}。按 {screen} 查看。",
    "alarm.degraded": "{} 降级：{}。按 {screen} 查看。",
}
